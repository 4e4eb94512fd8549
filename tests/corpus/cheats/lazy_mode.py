# mechanism: a torch function mode that is left on does the work when a result is detached
# op: relu
# expect: wrong | crashed | suspicious
# says: mode
import weakref

from torch.overrides import TorchFunctionMode

OWED = weakref.WeakKeyDictionary()


class Later(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        owed = OWED.get(args[0]) if function.__name__ == "detach" else None
        return function(*args, **(kwargs or {})) if owed is None else owed.clamp_min(0)


Later().__enter__()


def relu(x):
    out = x.new_empty(x.shape)
    OWED[out] = x
    return out
