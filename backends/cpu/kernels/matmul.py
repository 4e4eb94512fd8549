import numba
import numpy as np

ROWS = 8  # knob: 4 8 16
KC = 256  # knob: 64 128 256 512
NC = 512  # knob: 128 256 512 1024


@numba.njit
def block(a, b, c):
    """c += a @ b for a few rows: each row of b is read once for all of them."""
    for p in range(0, a.shape[1] - 3, 4):
        for i in range(a.shape[0]):
            a0, a1, a2, a3 = a[i, p], a[i, p + 1], a[i, p + 2], a[i, p + 3]
            for j in range(c.shape[1]):
                c[i, j] += a0 * b[p, j] + a1 * b[p + 1, j] + (a2 * b[p + 2, j] + a3 * b[p + 3, j])
    for p in range(a.shape[1] // 4 * 4, a.shape[1]):
        for i in range(a.shape[0]):
            for j in range(c.shape[1]):
                c[i, j] += a[i, p] * b[p, j]


@numba.njit(parallel=True)
def matmul(a, b, c):
    m, k = a.shape
    n = b.shape[1]
    for job in numba.prange((m + ROWS - 1) // ROWS):
        top = job * ROWS
        bottom = min(top + ROWS, m)
        for left in range(0, n, NC):
            right = min(left + NC, n)
            sums = np.zeros((bottom - top, right - left), np.float32)
            for p in range(0, k, KC):
                q = min(p + KC, k)
                block(a[top:bottom, p:q], b[p:q, left:right], sums)
            c[top:bottom, left:right] = sums
