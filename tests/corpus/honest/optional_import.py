# mechanism: try and except around an optional module, with a kernel of its own behind it
# op: relu
# torch_ops: allow
import numpy
import torch

try:
    import a_module_that_is_not_here as fast
except ImportError:
    fast = None


def relu(x):
    if fast is not None:
        return fast.relu(x)
    return torch.from_numpy(numpy.maximum(x.numpy(), 0))
