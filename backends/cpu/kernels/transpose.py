import numba
import numpy as np

TILE = 32  # knob: 16 32 64


@numba.njit
def move(x, y, top, height, left, width):
    """Through a tile of our own: rows that lie a power of two apart share a cache set."""
    tile = np.empty((TILE, TILE), x.dtype)
    for i in range(height):
        row = x[top + i][left : left + width]
        for j in range(width):
            tile[j, i] = row[j]
    for j in range(width):
        row = y[left + j][top : top + height]
        for i in range(height):
            row[i] = tile[j, i]


@numba.njit(parallel=True)
def transpose(x, y):
    rows, cols = x.shape
    down = (rows + TILE - 1) // TILE
    across = (cols + TILE - 1) // TILE
    for job in numba.prange(down * across):
        top, left = job % down * TILE, job // down * TILE
        move(x, y, top, min(TILE, rows - top), left, min(TILE, cols - left))
