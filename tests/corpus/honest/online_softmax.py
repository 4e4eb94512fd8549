# mechanism: online softmax, compiled by Numba and called from a plain function
# op: softmax
import numba
import numpy as np
import torch


@numba.njit
def kernel(x, y):
    for row in range(x.shape[0]):
        most, total = -np.inf, 0.0
        for v in x[row]:
            if v == -np.inf:  # masked: it adds nothing
                continue
            if v > most:
                total *= np.exp(most - v)
                most = v
            total += np.exp(v - most)
        for i in range(x.shape[1]):
            y[row, i] = np.exp(x[row, i] - most) / total


def softmax(x):
    y = torch.empty_like(x)
    kernel(x.numpy(), y.numpy())
    return y
