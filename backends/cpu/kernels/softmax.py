import numba
import numpy as np

LANES = 16  # knob: 8 16 32
BLOCK = 64  # knob: 32 64 128
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


@numba.njit
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
def row_max(x):
    lanes = np.full(LANES, -np.inf, np.float32)
    whole = x.size // LANES * LANES
    for i in range(0, whole, LANES):
        for k in range(LANES):
            lanes[k] = x[i + k] if x[i + k] > lanes[k] else lanes[k]
    top = np.float32(-np.inf)
    for k in range(LANES):
        top = max(top, lanes[k])
    for i in range(whole, x.size):
        top = x[i] if x[i] > top else top
    return top


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


@numba.njit(parallel=True)
def softmax(x, y):
    rows, cols = x.shape
    for row in numba.prange(rows):
        top = row_max(x[row])
        for i in range(cols):
            y[row, i] = exp_below_zero(x[row, i] - top)
        scale = ONE / row_sum(y[row])
        for i in range(cols):
            y[row, i] *= scale
