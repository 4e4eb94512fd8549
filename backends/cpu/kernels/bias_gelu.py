"""x + bias, times the normal distribution's integral up to it; runs of a row are shared out."""

import numba
import numpy as np

BLOCK = 4096  # knob: 1024 4096 16384
LOG2E = np.float32(1.44269504)
MAGIC = np.float32(12582912.0)  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
LOWEST = np.float32(-104.0)
ONE = np.float32(1.0)
ZERO = np.float32(0.0)
LOWEST_X = np.float32(-15.0)
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
@numba.njit(error_model="numpy", fastmath={"contract"})
def normal_cdf(x):
    """The normal distribution's integral up to x: 0.5 * erfc(t / sqrt(2)) in both tails."""
    t = abs(x)
    q = ONE / (ONE + np.float32(0.3) * t)
    p = q * np.float32(0.0384076119) - np.float32(0.169308459)
    p = p * q + np.float32(0.228953688)
    p = p * q - np.float32(0.0768416565)
    p = p * q + np.float32(0.142766514)
    p = p * q + np.float32(0.0945853974)
    p = p * q + np.float32(0.121945366)
    p = p * q + np.float32(0.119484195)
    p = p * q + np.float32(7.37298224e-6)
    tail = p * exp_below_zero(np.float32(-0.5) * t * t)
    return ONE - tail if x > ZERO else tail


@numba.njit(error_model="numpy")
def gelu(x, bias, y):
    for i in range(y.size):
        v = x[i] + bias[i]
        z = v * normal_cdf(v)
        y[i] = ZERO if v < LOWEST_X else z  # -infinity * 0 would be NaN


@numba.njit(parallel=True)
def bias_gelu(x, bias, y):
    rows, cols = x.shape
    blocks = (cols + BLOCK - 1) // BLOCK
    for job in numba.prange(rows * blocks):
        row, left = job // blocks, job % blocks * BLOCK
        right = min(left + BLOCK, cols)
        gelu(x[row][left:right], bias[left:right], y[row][left:right])
