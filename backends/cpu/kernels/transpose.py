import numba
import numpy as np

from portkern.backends.cpu.include.rows import copy

TILE = 32  # knob: 16 32 64
STRETCH = 16384  # knob: 4096 16384 65536


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
def copy_all(x, y):
    size = x.size
    for job in numba.prange((size + STRETCH - 1) // STRETCH):
        copy(x[job * STRETCH : (job + 1) * STRETCH], y[job * STRETCH : (job + 1) * STRETCH])


@numba.njit(parallel=True)
def in_tiles(x, y):
    rows, cols = x.shape
    down = (rows + TILE - 1) // TILE
    across = (cols + TILE - 1) // TILE
    for job in numba.prange(down * across):
        top, left = job % down * TILE, job // down * TILE
        move(x, y, top, min(TILE, rows - top), left, min(TILE, cols - left))


@numba.njit
def transpose(x, y):
    if min(x.shape) == 1:  # as it lies
        copy_all(x.reshape(-1), y.reshape(-1))
    else:
        in_tiles(x, y)
