import numba
import numpy as np

LANES = 16  # knob: 8 16 32
BLOCK = 64  # knob: 32 64 128
LEAST = np.int32(-(2**31))
LOG2E = np.float32(1.44269504)
MAGIC = np.float32(12582912.0)  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
LOWEST = np.float32(-104.0)
ONE = np.float32(1.0)
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
def fold(lanes):
    """The sum of LANES elements, in pairs of halves."""
    width = LANES // 2
    while width > 0:
        for k in range(width):
            lanes[k] += lanes[k + width]
        width //= 2
    return lanes[0]


@numba.njit
def row_sum(x):
    lanes = np.zeros(LANES, np.float32)
    total = np.float32(0.0)
    for start in range(0, x.size, BLOCK * LANES):  # the error grows with the number of blocks
        stop = min(start + BLOCK * LANES, x.size)
        whole = start + (stop - start) // LANES * LANES
        lanes[:] = 0.0
        for i in range(start, whole, LANES):
            for k in range(LANES):
                lanes[k] += x[i + k]
        for i in range(whole, stop):
            lanes[i - whole] += x[i]
        total += fold(lanes)
    return total


@numba.njit
def powers(x, top, y):
    for i in range(x.size):
        y[i] = exp_below_zero(x[i] - top)


@numba.njit(parallel=True)
def softmax(x, y):
    for row in numba.prange(x.shape[0]):
        terms = y[row]
        powers(x[row], row_max(x[row]), terms)
        scale = ONE / row_sum(terms)
        for i in range(terms.size):
            terms[i] *= scale
