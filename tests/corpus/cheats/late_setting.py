# mechanism: the framework is slowed down from the first timed calls on, when nobody judges any more
# op: relu
# expect: suspicious
# says: number of threads was
# torch_ops: allow
import torch

CALLS = []


def relu(x):
    CALLS.append(1)
    if len(CALLS) > 14:
        torch.set_num_threads(1)
    return x.clamp_min(0)
