# mechanism: states the types that it is compiled for, with names of Numba's own
# op: relu
# style: dps
import numba
from numba import types

_ROW = types.Array(types.float32, 1, "C")


@numba.njit(types.void(_ROW, _ROW))
def relu(x, y):
    for i in range(x.shape[0]):
        y[i] = x[i] if x[i] > 0 else 0
