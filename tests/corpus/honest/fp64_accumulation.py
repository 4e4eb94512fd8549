# mechanism: everything in float64 but the result
# op: layernorm
# torch_ops: allow
import numpy
import torch


def layernorm(x, weight, bias, eps):
    wide = x.numpy().astype(numpy.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    scale = 1 / numpy.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return torch.from_numpy((centred * scale * weight.numpy() + bias.numpy()).astype(numpy.float32))
