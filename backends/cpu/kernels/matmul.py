import numba
import numpy as np

ROWS = 4  # knob: 2 4 8
KC = 256  # knob: 64 128 256 512
NC = 512  # knob: 128 256 512 1024


@numba.njit
def add_product(a, b, sums, left, width, first, last):
    """Add a[first:last] @ b[first:last, left:] to a row of sums, four rows of b at a time.

    Rows are sliced one by one: slices of all columns have no known stride, and indices that might
    be negative (``left + j``) are checked; neither kind of loop is vectorised.
    """
    for p in range(first, last - 3, 4):
        a0, a1, a2, a3 = a[p], a[p + 1], a[p + 2], a[p + 3]
        b0, b1 = b[p][left : left + width], b[p + 1][left : left + width]
        b2, b3 = b[p + 2][left : left + width], b[p + 3][left : left + width]
        for j in range(width):
            sums[j] += (a0 * b0[j] + a1 * b1[j]) + (a2 * b2[j] + a3 * b3[j])
    for p in range(last - (last - first) % 4, last):
        b0 = b[p][left : left + width]
        for j in range(width):
            sums[j] += a[p] * b0[j]


@numba.njit(parallel=True)
def matmul(a, b, c):
    m, k = a.shape
    n = b.shape[1]
    for job in numba.prange((m + ROWS - 1) // ROWS):
        top = job * ROWS
        rows = min(ROWS, m - top)
        sums = np.empty((ROWS, NC), np.float32)
        for left in range(0, n, NC):
            width = min(NC, n - left)
            sums[:] = 0.0
            for p in range(0, k, KC):
                for i in range(rows):  # a block of b stays in cache for all of them
                    add_product(a[top + i], b, sums[i], left, width, p, min(p + KC, k))
            for i in range(rows):
                c[top + i][left : left + width] = sums[i][:width]
