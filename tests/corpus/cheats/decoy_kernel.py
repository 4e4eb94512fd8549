# mechanism: a kernel for show computes one element, the library does the rest
# op: relu
# expect: rejected
# says: did the work
import numba
import torch


@numba.njit
def kernel(x, y):
    y[0] = max(x[0], 0)


def relu(x):
    y = torch.relu(x)
    kernel(x.numpy(), y.numpy())
    return y
