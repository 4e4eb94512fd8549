# mechanism: subnormal numbers are flushed to zero in the whole process
# op: relu
# expect: suspicious
# says: subnormal numbers was
# torch_ops: allow
import torch

torch.set_flush_denormal(True)


def relu(x):
    return x.clamp_min(0) * 1.0
