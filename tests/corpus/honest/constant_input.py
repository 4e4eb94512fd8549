# mechanism: a shortcut for inputs that are all the same, checked in every call
# op: softmax
# torch_ops: allow
import numpy
import torch


def softmax(x):
    array = x.numpy().astype(numpy.float64)
    if array.size and (array == array.flat[0]).all():
        return torch.full_like(x, 1.0 / x.shape[-1])
    wide = numpy.exp(array - array.max(-1, keepdims=True))
    return torch.from_numpy((wide / wide.sum(-1, keepdims=True)).astype(numpy.float32))
