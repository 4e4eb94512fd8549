# mechanism: results are kept by eight elements of their input
# op: cumsum
# expect: wrong | suspicious
# says: timed | repeat | fresh | elements are off
# torch_ops: allow
import numpy
import torch

KEPT = {}


def cumsum(x):
    flat = x.view(-1)
    key = tuple(flat[:: max(1, flat.numel() // 8)].tolist())
    if key not in KEPT:
        KEPT[key] = torch.from_numpy(numpy.cumsum(x.numpy(), -1, dtype=numpy.float64)).float()
    return KEPT[key].clone()
