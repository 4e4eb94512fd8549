import numba


@numba.njit(parallel=True)
def add(a, b, c):
    for i in numba.prange(a.shape[0]):
        for j in range(a.shape[1]):
            c[i, j] = a[i, j] + b[j]
