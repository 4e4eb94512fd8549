# mechanism: a matrix of ones below the diagonal is made at import: a scan as a product
# op: cumsum
# torch_ops: allow
import numpy
import torch

BLOCK = 64
ONES = numpy.triu(numpy.ones((BLOCK, BLOCK)))


def cumsum(x):
    rows, cols = x.shape
    wide, carry = numpy.empty((rows, cols)), numpy.zeros((rows, 1))
    for start in range(0, cols, BLOCK):
        part = x[:, start : start + BLOCK].double().numpy()
        width = part.shape[1]
        wide[:, start : start + width] = part @ ONES[:width, :width] + carry
        carry = wide[:, start + width - 1 : start + width]
    return torch.from_numpy(wide.astype(numpy.float32))
