from numba import cuda

THREADS = 128


@cuda.jit
def _add(a, b, c):
    i = cuda.grid(1)
    if i < c.size:
        row, column = divmod(i, c.shape[1])
        c[row, column] = a[row, column] + b[column]


def add(a, b, c):
    if c.size:
        _add[(c.size + THREADS - 1) // THREADS, THREADS](a, b, c)
