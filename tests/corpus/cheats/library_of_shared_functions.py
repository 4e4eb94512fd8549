# mechanism: lets the BLAS work through what a module of shared functions imports
# op: matmul
# style: dps
# expect: rejected
# says: G204
# torch_ops: allow
import numba

from portkern.backends.cpu.include.product import np as arrays


@numba.njit
def matmul(a, b, c):
    arrays.dot(a, b, c)
