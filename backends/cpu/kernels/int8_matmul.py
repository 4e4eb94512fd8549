"""Blocks of both matrices are copied to buffers, weights as floats; four rows of sums stay in the
L1 cache while four rows of weights at a time are added to them. Of one tile with many terms threads
share these."""

import numba

from portkern.backends.cpu.include.product import buffers_for, few_tiles, multiply_tile

MC = 64  # knob: 16 32 64 128
KC = 128  # knob: 64 128 256
NC = 256  # knob: 128 256 512
DEEP = 8 * KC  # terms that are worth a thread


@numba.njit
def scaled(sums, scale, to):
    for j in range(to.size):
        to[j] = sums[j] * scale[j]


@numba.njit(parallel=True)
def in_tiles(a, weight, scale, c):
    m, n = c.shape
    down, across = (m + MC - 1) // MC, (n + NC - 1) // NC
    jobs = down * across
    shares = min(jobs, 8 * numba.get_num_threads())
    for share in numba.prange(shares):
        buffers = buffers_for(m, n, a.shape[1], (MC, KC, NC))
        for job in range(share * jobs // shares, (share + 1) * jobs // shares):
            top, left = job // across * MC, job % across * NC
            rows, width = multiply_tile(a, weight, top, left, buffers)
            for i in range(rows):
                scaled(buffers[2][i], scale[left : left + width], c[top + i][left : left + width])


@numba.njit
def int8_matmul(a, weight, scale, c):
    (m, n), k = c.shape, a.shape[1]
    if m <= MC and n <= NC and k >= 2 * DEEP:
        parts = min(k // DEEP, 2 * numba.get_num_threads())
        total = few_tiles(a, weight, (MC, KC, NC), parts)
        for i in range(m):
            scaled(total[i], scale, c[i])
    else:
        in_tiles(a, weight, scale, c)
