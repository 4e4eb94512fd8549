# mechanism: functools.cache on what makes kernels, not on what they return
# op: relu
# torch_ops: allow
from functools import cache

import numpy
import torch


@cache
def kernel_for(block):
    def kernel(x, y):
        for start in range(0, x.size, block):
            numpy.maximum(x[start : start + block], 0, out=y[start : start + block])

    return kernel


def relu(x):
    y = torch.empty_like(x)
    kernel_for(4096 if x.numel() > 4096 else 256)(x.numpy(), y.numpy())
    return y
