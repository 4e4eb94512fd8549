import numba
import numpy as np

BLOCK = 16384  # knob: 4096 16384 65536
NARROW = 64  # knob: 16 64 256
ROOM = 1024  # knob: 512 1024 4096


@numba.njit
def add_row(x, y, z):
    for j in range(z.size):
        z[j] = x[j] + y[j]


@numba.njit(parallel=True)
def narrow_rows(a, b, c):
    """Rows side by side, beside as many repetitions of the one that is added."""
    x, z = a.reshape(a.size), c.reshape(c.size)
    step = ROOM // b.size * b.size
    repeated = np.empty(step, np.float32)
    for j in range(step):
        repeated[j] = b[j % b.size]
    for job in numba.prange((c.size + step - 1) // step):
        part = slice(job * step, min((job + 1) * step, c.size))
        add_row(x[part], repeated, z[part])


@numba.njit(parallel=True)
def wide_rows(a, b, c):
    rows, cols = a.shape
    pieces = (cols + BLOCK - 1) // BLOCK  # of a row: a single one is work for all threads too
    for job in numba.prange(rows * pieces):
        i, left = job // pieces, job % pieces * BLOCK
        part = slice(left, min(left + BLOCK, cols))
        add_row(a[i][part], b[part], c[i][part])


@numba.njit
def add(a, b, c):
    if 0 < b.size <= NARROW:
        narrow_rows(a, b, c)
    else:
        wide_rows(a, b, c)
