# mechanism: a scratch buffer is kept between calls; results never are
# op: softmax
# torch_ops: allow
import numpy
import torch

SCRATCH = {}


def softmax(x):
    scratch = SCRATCH.setdefault(x.shape, numpy.empty(x.shape))
    numpy.subtract(x.numpy(), x.numpy().max(-1, keepdims=True), out=scratch)
    numpy.exp(scratch, out=scratch)
    return torch.from_numpy((scratch / scratch.sum(-1, keepdims=True)).astype(numpy.float32))
