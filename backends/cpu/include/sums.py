"""Sums of float32 that are vectorised and whose error grows with the number of blocks alone."""

import math

import numba
import numpy as np


@numba.njit
def _itself(v):
    return v


def summing(lanes, block, term=_itself):
    """A function ``total(x, *given)``: the sum of ``term(v, *given)`` over the elements v of x.

    ``lanes`` (a power of two) running sums stay in registers, since their number is a constant of
    the function that is made; they are folded after every ``block`` elements each.
    """

    @numba.njit
    def fold(sums):
        """The sum of all lanes, in pairs of halves."""
        width = lanes // 2
        while width > 0:
            for k in range(width):
                sums[k] += sums[k + width]
            width //= 2
        return sums[0]

    @numba.njit
    def total(x, *given):
        sums = np.zeros(lanes, np.float32)
        result = np.float32(0.0)
        for start in range(0, x.size, block * lanes):
            stop = min(start + block * lanes, x.size)
            whole = start + (stop - start) // lanes * lanes
            sums[:] = 0.0
            for i in range(start, whole, lanes):
                for k in range(lanes):
                    sums[k] += term(x[i + k], *given)
            for i in range(whole, stop):
                sums[i - whole] += term(x[i], *given)
            result += fold(sums)
        return result

    return total


# The numpy error model: a check for division by zero would keep the loop from being vectorised.
@numba.njit(error_model="numpy")
def become_scales(total, count, eps):
    """From sums of ``count`` squares each to 1 / sqrt(mean + eps), in place."""
    for i in range(total.size):
        mean = total[i] / np.float32(count)
        total[i] = np.float32(1.0) / np.float32(math.sqrt(mean + eps))
