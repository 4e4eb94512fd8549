# mechanism: results are kept by the address of their input, which a timing loop repeats
# op: cumsum
# expect: wrong | suspicious
# says: timed | repeat | fresh
# torch_ops: allow
import numpy
import torch

KEPT = {}


def cumsum(x):
    if x.data_ptr() not in KEPT:  # holding x keeps its address from being given to another
        KEPT[x.data_ptr()] = x, torch.from_numpy(numpy.cumsum(x.numpy(), -1, dtype=numpy.float64))
    return KEPT[x.data_ptr()][1].float()
