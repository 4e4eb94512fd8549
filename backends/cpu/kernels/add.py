import numba

BLOCK = 16384  # knob: 4096 16384 65536


@numba.njit(parallel=True)
def add(a, b, c):
    rows, cols = a.shape
    pieces = (cols + BLOCK - 1) // BLOCK  # of a row: a single one is work for all threads too
    for job in numba.prange(rows * pieces):
        i, left = job // pieces, job % pieces * BLOCK
        width = min(BLOCK, cols - left)
        x, y, z = a[i][left : left + width], b[left : left + width], c[i][left : left + width]
        for j in range(width):
            z[j] = x[j] + y[j]
