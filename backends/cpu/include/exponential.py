"""Exponentials without branches or calls, which leave the loops around them to be vectorised."""

import numba
import numpy as np

LOG2E = np.float32(1.44269504)
MAGIC = np.float32(12582912.0)  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
LOWEST = np.float32(-104.0)
LOWEST_NORMAL = np.float32(-87.0)
ZERO = np.float32(0.0)
ONE = np.float32(1.0)
E2 = np.float32(4.99999934e-1)
E3 = np.float32(1.66665206e-1)
E4 = np.float32(4.16683881e-2)
E5 = np.float32(8.36871709e-3)
E6 = np.float32(1.38145964e-3)


# Fused multiply-adds, as C++ compilers make them unasked.
@numba.njit(fastmath={"contract"})
def _split(x):
    """e**x as a power of e near 1 and an exponent of 2."""
    shifted = x * LOG2E + MAGIC
    whole = shifted - MAGIC
    r = (x - whole * LN2_HIGH) - whole * LN2_LOW
    p = (((E6 * r + E5) * r + E4) * r + E3) * r + E2
    n = np.int32(np.float32(shifted).view(np.int32) - np.int32(0x4B400000))
    return (p * r) * r + r + ONE, n


@numba.njit
def _two_to_the(n):
    return np.int32(np.int32(n + 127) << 23).view(np.float32)


@numba.njit(fastmath={"contract"})
def exp_below_zero(x):
    """e**x for x <= 0; a call of the C library's exp would keep its loop from being vectorised."""
    power, n = _split(LOWEST if x < LOWEST else x)
    half = np.int32(n >> 1)
    # In two steps, because 2**-150 has no float of its own.
    return power * _two_to_the(half) * _two_to_the(np.int32(n - half))


@numba.njit(fastmath={"contract"})
def exp_beside_one(x):
    """e**x for x <= 0, but not less than 1e-38: next to a term that is 1, smaller ones are lost,
    and they are slow to compute."""
    power, n = _split(LOWEST_NORMAL if x < LOWEST_NORMAL else x)
    return power * _two_to_the(n)


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
