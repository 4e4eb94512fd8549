import numba
import numpy as np

TILE = 32  # knob: 16 32 64


@numba.njit
def move(x, y):
    """Through a tile of our own: rows of x and of y that lie a power of two apart share a cache set."""
    tile = np.empty((TILE, TILE), x.dtype)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            tile[i, j] = x[i, j]
    for j in range(x.shape[1]):
        for i in range(x.shape[0]):
            y[j, i] = tile[i, j]


@numba.njit(parallel=True)
def transpose(x, y):
    rows, cols = x.shape
    down = (rows + TILE - 1) // TILE
    across = (cols + TILE - 1) // TILE
    for job in numba.prange(down * across):
        i, j = job % down * TILE, job // down * TILE
        bottom, right = min(i + TILE, rows), min(j + TILE, cols)
        move(x[i:bottom, j:right], y[j:right, i:bottom])
