# mechanism: the framework's default dtype is float64 from now on
# op: relu
# expect: suspicious
# says: default dtype was
# torch_ops: allow
import torch

torch.set_default_dtype(torch.float64)


def relu(x):
    return x.clamp_min(0)
