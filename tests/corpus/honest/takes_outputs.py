# mechanism: a Python function that is given its outputs, as arrays
# op: relu
# style: dps
# torch_ops: allow
import numpy


def relu(x, y):
    numpy.maximum(x, 0, out=y)
