# mechanism: allocates until the machine has no memory left
# op: relu
# expect: crashed
# says: MemoryError | SIGKILL
# torch_ops: allow
import numpy


def relu(x):
    held = []
    while True:
        held.append(numpy.zeros(1 << 28, numpy.uint8))
