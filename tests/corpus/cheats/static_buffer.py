# mechanism: one buffer for the results of all calls: the next call overwrites the last result
# op: relu
# expect: wrong | suspicious
# says: in a timed call
# torch_ops: allow
import torch

KEPT = {}


def relu(x):
    out = KEPT.setdefault(x.shape, torch.empty_like(x))
    return torch.clamp(x, min=0, out=out)
