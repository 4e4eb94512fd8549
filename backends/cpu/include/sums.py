"""Sums of float32 that are vectorised and whose error grows with the number of blocks alone."""

import math

import numba
import numpy as np


@numba.njit
def _itself(v):
    return v


def summing(block, term=_itself):
    """A function ``total(x, *given)``: the sum of ``term(v, *given)`` over the elements v of x,
    in float32 over ``block`` of them at a time and in float64 over blocks."""

    # Sums of a vector's lanes, which no order is asked of; the terms' own arithmetic is kept.
    @numba.njit(fastmath={"reassoc", "contract"}, forceinline=True)
    def of_block(x, *given):
        total = np.float32(0.0)
        for i in range(x.size):
            total += term(x[i], *given)
        return total

    @numba.njit(forceinline=True)  # a call takes as long as a short row
    def total(x, *given):
        if x.size <= block:
            return of_block(x, *given)
        total = 0.0
        for start in range(0, x.size, block):
            total += of_block(x[start : start + block], *given)
        return np.float32(total)

    return total


# The numpy error model: a check for division by zero would keep the loop from being vectorised.
@numba.njit(error_model="numpy")
def become_scales(total, count, eps):
    """Replaces sums of ``count`` squares by 1 / sqrt(mean + eps), in place."""
    for i in range(total.size):
        mean = total[i] / np.float32(count)
        total[i] = np.float32(1.0) / np.float32(math.sqrt(mean + eps))
