import numba
import numpy as np

BLOCK = 64  # knob: 16 64 256


@numba.njit(parallel=True)
def cumsum(x, y):
    rows, cols = x.shape
    for row in numba.prange(rows):
        # Blocks start from zero and a compensated carry (Knuth's two-sum) is added to them, so that
        # the error does not grow along the row.
        carry, error = np.float32(0.0), np.float32(0.0)
        for start in range(0, cols, BLOCK):
            total = np.float32(0.0)
            before = carry + error
            for i in range(start, min(start + BLOCK, cols)):
                total += x[row, i]
                y[row, i] = before + total
            after = carry + total
            rounded = after - carry
            missed = (carry - (after - rounded)) + (total - rounded)
            if missed - missed == 0.0:  # an infinite sum has no error, and stays infinite
                error += missed
            carry = after
