import numba
import numpy as np

ONE = np.float32(1.0)
BLOCK = 512  # knob: 256 512 1024


@numba.njit
def row_max(x):
    lanes = np.full(16, -np.inf, np.float32)
    whole = x.size // 16 * 16
    for i in range(0, whole, 16):
        for k in range(16):
            lanes[k] = x[i + k] if x[i + k] > lanes[k] else lanes[k]
    top = np.float32(-np.inf)
    for k in range(16):
        top = max(top, lanes[k])
    for i in range(whole, x.size):
        top = x[i] if x[i] > top else top
    return top


@numba.njit(parallel=True)
def softmax(x, y):
    rows, cols = x.shape
    for row in numba.prange(rows):
        top = row_max(x[row])
        total = np.float32(0.0)
        start = 0
        while start < cols:
            stop = min(start + BLOCK, cols)
            part = np.float32(0.0)
            for i in range(start, stop):
                e = np.exp(x[row, i] - top)
                y[row, i] = e
                part += e
            total += part
            start = stop
        scale = ONE / total
        for i in range(cols):
            y[row, i] *= scale
