# mechanism: one path for whole blocks, another for what is left
# op: sum
# torch_ops: allow
import numpy
import torch


def sum(x):
    outer, reduce, inner = x.shape
    array, whole = x.numpy(), reduce // 8 * 8
    if inner == 1 and whole:
        lanes = array[:, :whole, 0].reshape(outer, -1, 8).sum(1, dtype=numpy.float64)
        total = lanes.sum(-1) + array[:, whole:, 0].sum(-1, dtype=numpy.float64)
        return torch.from_numpy(total.astype(numpy.float32)[:, None])
    return torch.from_numpy(array.sum(1, dtype=numpy.float64).astype(numpy.float32))
