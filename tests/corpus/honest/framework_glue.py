# mechanism: the framework makes, converts, reshapes and copies tensors; the work is the kernel's own
# op: softmax
import numba
import numpy
import torch


@numba.njit
def kernel(x, y):
    for i in range(x.shape[0]):
        e = numpy.exp(x[i] - x[i].max())
        y[i] = e / e.sum()


def softmax(x):
    rows = x.contiguous().view(-1, x.shape[-1]).to(torch.float64)
    y = torch.empty(rows.shape, dtype=torch.float64)
    if x.numel():
        kernel(rows.numpy(), y.numpy())
    return y.to(x.dtype).reshape(x.shape).contiguous()
