from portkern.backends.opencl.include.product import multiply

ROWS = 6  # knob: 4 6

SOURCE = r"""
#ifndef PORTKERN_CPU
#include <portkern/operands.h>
#include <portkern/thin_product.h>
#include <portkern/tile.h>
#include <portkern/product.h>
#endif

#ifdef PORTKERN_CPU
// On a CPU: ROWS rows of two vectors per work-item, in registers.
kernel void matmul_cpu(global const storage_t* a, global const storage_t* b, global storage_t* c,
                       long m, long n, long k) {
  const long left = (long)get_global_id(1) * 2 * VEC, top = (long)get_global_id(0) * ROWS;
  if (top + ROWS <= m && left + 2 * VEC <= n) {
    vec_t s0[ROWS], s1[ROWS];
    for (int i = 0; i < ROWS; ++i) s0[i] = s1[i] = 0.0f;
    for (long p = 0; p < k; ++p) {
      const vec_t b0 = LOADV(b, p * n + left), b1 = LOADV(b, p * n + left + VEC);
      for (int i = 0; i < ROWS; ++i) {
        const vec_t x = LOAD(a, (top + i) * k + p);
        s0[i] += x * b0;
        s1[i] += x * b1;
      }
    }
    for (int i = 0; i < ROWS; ++i) {
      STOREV(c, (top + i) * n + left, s0[i]);
      STOREV(c, (top + i) * n + left + VEC, s1[i]);
    }
    return;
  }
  for (long i = top; i < min(top + ROWS, m); ++i)
    for (long j = left; j < min(left + 2 * VEC, n); ++j) {
      float sum = 0.0f;
      for (long p = 0; p < k; ++p) sum += LOAD(a, i * k + p) * LOAD(b, p * n + j);
      STORE(c, i * n + j, sum);
    }
}
#endif
"""


def matmul(queue, program, a, b, c, *, m, n, k):
    if m == 0 or n == 0:
        return
    if program.cpu:
        queue = program.nearby(queue, m * n * k // 4)
        size = (-(-m // ROWS), -(-n // (2 * program.vec)))
        program.matmul_cpu(queue, size, (1, 1), a, b, c, m, n, k)
        return
    multiply(queue, program, a, b, a, c, batch=1, m=m, n=n, k=k)
