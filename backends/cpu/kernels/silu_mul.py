"""The sigmoid from e**-|gate|, which cannot overflow; blocks of elements are shared out."""

import numba
import numpy as np

BLOCK = 8192  # knob: 2048 8192 32768
LOG2E = np.float32(1.44269504)
MAGIC = np.float32(12582912.0)  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
LOWEST = np.float32(-104.0)
ONE = np.float32(1.0)
ZERO = np.float32(0.0)
E2 = np.float32(4.99999934e-1)
E3 = np.float32(1.66665206e-1)
E4 = np.float32(4.16683881e-2)
E5 = np.float32(8.36871709e-3)
E6 = np.float32(1.38145964e-3)


# Fused multiply-adds, as C++ compilers make them unasked.
@numba.njit(fastmath={"contract"})
def exp_below_zero(x):
    """e**x for x <= 0; a call of the C library's exp would keep its loop from being vectorised."""
    x = LOWEST if x < LOWEST else x
    shifted = x * LOG2E + MAGIC
    whole = shifted - MAGIC
    r = (x - whole * LN2_HIGH) - whole * LN2_LOW
    p = (((E6 * r + E5) * r + E4) * r + E3) * r + E2
    n = np.int32(np.float32(shifted).view(np.int32) - np.int32(0x4B400000))
    half = np.int32(n >> 1)
    # In two steps, because 2**-150 has no float of its own.
    one = np.int32(np.int32(half + 127) << 23).view(np.float32)
    two = np.int32(np.int32(n - half + 127) << 23).view(np.float32)
    return ((p * r) * r + r + ONE) * one * two


# The numpy error model: a check for division by zero would keep the loop from being vectorised.
@numba.njit(error_model="numpy")
def gated(gate, up, y):
    for i in range(y.size):
        g = gate[i]
        e = exp_below_zero(-abs(g))
        y[i] = g * ((e if g < ZERO else ONE) / (ONE + e)) * up[i]


@numba.njit(parallel=True)
def silu_mul(gate, up, y):
    for job in numba.prange((y.size + BLOCK - 1) // BLOCK):
        start = job * BLOCK
        stop = min(start + BLOCK, y.size)
        gated(gate[start:stop], up[start:stop], y[start:stop])
