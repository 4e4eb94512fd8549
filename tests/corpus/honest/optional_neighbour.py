# mechanism: a file of a package, which imports a neighbour where it lies in one, and runs by itself
# op: relu
# torch_ops: allow
import importlib.util
import sys

import numpy
import torch

try:
    from . import tuned_relu as tuned
except ImportError:
    tuned = None

HAS_NUMBA = importlib.util.find_spec("numba") is not None


def relu(x):
    if tuned is not None:
        return tuned.relu(x)
    return torch.from_numpy(numpy.maximum(x.numpy(), 0))


if __name__ == "__main__" and __package__ is None:
    __package__ = "kernels"
    sys.exit(int(not HAS_NUMBA))
