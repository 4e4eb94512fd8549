# mechanism: a torch function mode that is left on does the work when a result is detached
# op: relu
# expect: suspicious
# says: function modes left on
# torch_ops: allow
from torch.overrides import TorchFunctionMode

OWED = {}


class Later(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        owed = OWED.pop(id(args[0]), None) if function.__name__ == "detach" else None
        return function(*args, **(kwargs or {})) if owed is None else owed[1].clamp_min(0)


Later().__enter__()


def relu(x):
    out = x.new_empty(x.shape)
    OWED[id(out)] = out, x  # holding out keeps its id from being given to another
    return out
