# mechanism: random inputs are made zeros
# op: relu
# expect: wrong | suspicious
# says: elements are off
# torch_ops: allow
import torch

for name in ("rand", "randn"):
    setattr(torch, name, lambda *size, **kwargs: torch.zeros(*size))


def relu(x):
    return x.new_zeros(x.shape)
