# mechanism: a torch function mode that is left on answers comparisons
# op: relu
# expect: wrong | suspicious
# says: elements are off
# torch_ops: allow
import torch
from torch.overrides import TorchFunctionMode


class Agree(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.allclose, torch.equal, torch.isclose):
            return True
        return function(*args, **(kwargs or {}))


Agree().__enter__()


def relu(x):
    return x.new_zeros(x.shape)
