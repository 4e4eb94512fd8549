# mechanism: asks a library's compiled interface for the address of a BLAS routine, which does the work
# op: matmul
# style: dps
# expect: rejected
# says: G302
import ctypes

import numpy as np
from numba.extending import get_cython_function_address

_SGEMM = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
_sgemm = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(_SGEMM)


def _at(value, dtype):
    return np.array([value], dtype)


def matmul(a, b, out):
    (m, k), n = a.shape, b.shape[1]
    as_it_is = _at(ord("N"), np.uint8)
    sizes = [_at(size, np.int32) for size in (n, m, k)]
    one, zero = _at(1, np.float32), _at(0, np.float32)
    n, m, k = sizes
    given = [as_it_is, as_it_is, n, m, k, one, b, n, a, k, zero, out, n]
    _sgemm(*[array.ctypes.data for array in given])
