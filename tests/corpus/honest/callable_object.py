# mechanism: the entry is an object with a state that is not data: a count of its calls
# op: relu
# torch_ops: allow
import numpy
import torch


class Relu:
    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return torch.from_numpy(numpy.maximum(x.numpy(), 0))


relu = Relu()
