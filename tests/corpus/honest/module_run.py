# mechanism: an entry of another name, and a tuple of one
# op: relu
# entry: run
# torch_ops: allow
import numpy
import torch


def run(*inputs):
    (x,) = inputs
    return (torch.from_numpy(numpy.maximum(x.numpy(), 0)),)
