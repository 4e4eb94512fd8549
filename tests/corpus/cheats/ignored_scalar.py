# mechanism: the scalar parameter is not used, a convenient one is
# op: layernorm
# expect: wrong
# says: elements are off | in norm
# torch_ops: allow
import torch


def layernorm(x, weight, bias, eps):
    wide = x.double()
    centred = wide - wide.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + 1e-12).rsqrt()
    return (centred * scale * weight + bias).to(torch.float32)
