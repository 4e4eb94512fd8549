"""log(sum(e**(x - top))) + top - x[target], where top is the row's largest element."""

import math

import numba
import numpy as np

BLOCK = 1024  # knob: 256 1024 4096
LEAST = np.int32(-(2**31))
LOG2E = np.float32(1.44269504)
MAGIC = np.float32(12582912.0)  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
LOWEST = np.float32(-87.0)
ONE = np.float32(1.0)
E2 = np.float32(4.99999934e-1)
E3 = np.float32(1.66665206e-1)
E4 = np.float32(4.16683881e-2)
E5 = np.float32(8.36871709e-3)
E6 = np.float32(1.38145964e-3)


# Fused multiply-adds, as C++ compilers make them unasked.
@numba.njit(fastmath={"contract"})
def exp_below_zero(x):
    """e**x for x <= 0, but not less than 1e-38: next to a term that is 1, smaller ones are lost,
    and they are slow to compute. A call of the C library's exp would not be vectorised."""
    x = LOWEST if x < LOWEST else x
    shifted = x * LOG2E + MAGIC
    whole = shifted - MAGIC
    r = (x - whole * LN2_HIGH) - whole * LN2_LOW
    p = (((E6 * r + E5) * r + E4) * r + E3) * r + E2
    n = np.int32(np.float32(shifted).view(np.int32) - np.int32(0x4B400000))
    return ((p * r) * r + r + ONE) * np.int32(np.int32(n + 127) << 23).view(np.float32)


@numba.njit
def ordered(bits):
    """From a float's bits to an integer that compares as it does, and back."""
    return np.int32(bits ^ np.int32(np.int32(bits >> 31) & np.int32(0x7FFFFFFF)))


@numba.njit
def row_max(x):
    """Of integers, because a maximum of floats is not vectorised."""
    top = LEAST
    for i in range(x.size):
        top = max(top, ordered(np.float32(x[i]).view(np.int32)))
    return np.int32(ordered(top)).view(np.float32)


@numba.njit
def sum_exp(x, top, powers):
    """Halves are added to each other: this is vectorised, and its error does not grow much."""
    for i in range(x.size):
        powers[i] = exp_below_zero(x[i] - top)
    count = x.size
    while count > 1:
        rest = count // 2
        low, high = powers[:rest], powers[count - rest : count]
        for i in range(rest):
            low[i] += high[i]
        count -= rest
    return powers[0]


@numba.njit(parallel=True)
def cross_entropy(logits, target, loss):
    rows, classes = logits.shape
    for row in numba.prange(rows):
        powers = np.empty(BLOCK, np.float32)
        x, total = logits[row], np.float32(0.0)
        top = row_max(x)
        for start in range(0, classes, BLOCK):
            total += sum_exp(x[start : start + BLOCK], top, powers)
        loss[row] = np.float32(math.log(total)) + (top - x[target[row]])
