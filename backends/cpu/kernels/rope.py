"""Each pair (first[j], second[j]) of a head is turned by its token's angle j."""

import numba

TOKENS = 4  # knob: 1 4 16


@numba.njit
def turn(first, second, cos, sin, to_first, to_second):
    for j in range(cos.size):
        a, b, c, s = first[j], second[j], cos[j], sin[j]  # once: a store might change them
        to_first[j] = a * c - b * s
        to_second[j] = b * c + a * s


@numba.njit(parallel=True)
def rope(x, cos, sin, y):
    tokens, heads = x.shape[:2]
    for job in numba.prange((tokens + TOKENS - 1) // TOKENS):
        for t in range(job * TOKENS, min(job * TOKENS + TOKENS, tokens)):
            for h in range(heads):
                turn(x[t, h, 0], x[t, h, 1], cos[t], sin[t], y[t, h, 0], y[t, h, 1])
