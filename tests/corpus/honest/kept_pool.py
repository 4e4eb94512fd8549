# mechanism: a pool that lives between calls and is idle there
# op: cumsum
# torch_ops: allow
from concurrent.futures import ThreadPoolExecutor

import numpy
import torch

POOL = ThreadPoolExecutor(2)


def cumsum(x):
    out = torch.empty_like(x)

    def row(i):
        out.numpy()[i] = numpy.cumsum(x.numpy()[i], dtype=numpy.float64)

    list(POOL.map(row, range(x.shape[0])))
    return out
