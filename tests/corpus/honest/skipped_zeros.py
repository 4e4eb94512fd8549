# mechanism: factors that are zero are not multiplied: it depends on the data
# op: matmul
# torch_ops: allow
import numpy
import torch


def matmul(a, b):
    used = (a.numpy() != 0).any(0)
    left, right = a.numpy()[:, used].astype(numpy.float64), b.numpy()[used].astype(numpy.float64)
    return torch.from_numpy((left @ right).astype(numpy.float32))
