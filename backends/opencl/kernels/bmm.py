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
// On a CPU: ROWS rows of two vectors per work-item, in registers. Rows beyond the last repeat it.
kernel void bmm_cpu(global const storage_t* a, global const storage_t* b, global storage_t* c,
                    long m, long n, long k) {
  const long top = (long)get_global_id(0) * ROWS, left = (long)get_global_id(1) * 2 * VEC;
  const long batch = get_global_id(2);
  long from[ROWS];
  vec_t s0[ROWS], s1[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    from[i] = (batch * m + min(top + i, m - 1)) * k;
    s0[i] = s1[i] = 0.0f;
  }
  b += batch * k * n;
  for (long p = 0; p < k; ++p, b += n) {
    const vec_t b0 = LOADROW(b, 0, left, n, 0.0f), b1 = LOADROW(b, 0, left + VEC, n, 0.0f);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const vec_t x = LOAD(a, from[i] + p);
      s0[i] += x * b0;
      s1[i] += x * b1;
    }
  }
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    if (top + i >= m) break;
    STOREROW(c, (batch * m + top + i) * n, left, n, s0[i]);
    STOREROW(c, (batch * m + top + i) * n, left + VEC, n, s1[i]);
  }
}
#endif
"""


def bmm(queue, program, a, b, c, *, batch, m, n, k):
    if batch == 0 or m == 0 or n == 0:
        return
    if program.cpu:
        queue = program.nearby(queue, batch * m * n * k // 4)
        size = (-(-m // ROWS), -(-n // (2 * program.vec)), batch)
        program.bmm_cpu(queue, size, (1, 1, 1), a, b, c, m, n, k)
        return
    multiply(queue, program, a, b, a, c, batch=batch, m=m, n=n, k=k)
