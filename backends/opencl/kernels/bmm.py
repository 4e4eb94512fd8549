from portkern.backends.opencl.include.cpu_product import multiply_cpu
from portkern.backends.opencl.include.product import multiply

ENOUGH = 32  # knob: 8 32 128

SOURCE = r"""
#ifndef PORTKERN_CPU
#include <portkern/operands.h>
#include <portkern/thin_product.h>
#include <portkern/tile.h>
#include <portkern/product.h>
#else
#include <portkern/cpu_tile.h>
#include <portkern/cpu_product.h>
#endif
"""


def bmm(queue, program, a, b, c, *, batch, m, n, k):
    if batch == 0 or m == 0 or n == 0:
        return
    if program.cpu:
        multiply_cpu(queue, program, a, b, a, c, batch=batch, m=m, n=n, k=k, enough=ENOUGH)
        return
    multiply(queue, program, a, b, a, c, batch=batch, m=m, n=n, k=k)
