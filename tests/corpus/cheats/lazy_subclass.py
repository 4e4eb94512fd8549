# mechanism: a tensor that computes when it is looked at
# op: relu
# expect: crashed | wrong | suspicious
# says: type Lazy
# torch_ops: allow
import torch


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        plain = [
            a.as_subclass(torch.Tensor).clamp_min(0) if isinstance(a, Lazy) else a for a in args
        ]
        return function(*plain, **(kwargs or {}))


def relu(x):
    return x.as_subclass(Lazy)
