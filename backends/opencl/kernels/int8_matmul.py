from portkern.backends.opencl.include.product import multiply

ROWS = 6  # knob: 4 6

SOURCE = r"""
#ifndef PORTKERN_CPU
#define INT8_WEIGHTS
#include <portkern/operands.h>
#include <portkern/thin_product.h>
#include <portkern/tile.h>
#include <portkern/product.h>
#endif

#ifdef PORTKERN_CPU
typedef struct __attribute__((packed)) { PORTKERN_JOIN(char, VEC) v; } loose_t;  // at any address

inline vec_t weight_vector(global const char* row, long j, long n) {
  if (j + VEC <= n) return PORTKERN_JOIN(convert_float, VEC)(((global const loose_t*)(row + j))->v);
  float v[VEC];
  for (int q = 0; q < VEC; ++q) v[q] = j + q < n ? row[j + q] : 0;
  return PORTKERN_JOIN(vload, VEC)(0, v);
}

// On a CPU: ROWS rows of two vectors per work-item, in registers. Rows beyond the last repeat it.
kernel void int8_matmul_cpu(global const storage_t* a, global const char* weight,
                            global const storage_t* scale, global storage_t* c, long m, long n,
                            long k) {
  const long top = (long)get_global_id(0) * ROWS, left = (long)get_global_id(1) * 2 * VEC;
  long from[ROWS];
  vec_t s0[ROWS], s1[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    from[i] = min(top + i, m - 1) * k;
    s0[i] = s1[i] = 0.0f;
  }
  for (long p = 0; p < k; ++p) {
    const vec_t w0 = weight_vector(weight + p * n, left, n);
    const vec_t w1 = weight_vector(weight + p * n, left + VEC, n);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const vec_t x = LOAD(a, from[i] + p);
      s0[i] += x * w0;
      s1[i] += x * w1;
    }
  }
  const vec_t scale0 = LOADROW(scale, 0, left, n, 0.0f);
  const vec_t scale1 = LOADROW(scale, 0, left + VEC, n, 0.0f);
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    if (top + i >= m) break;
    STOREROW(c, (top + i) * n, left, n, s0[i] * scale0);
    STOREROW(c, (top + i) * n, left + VEC, n, s1[i] * scale1);
  }
}
#endif
"""


def int8_matmul(queue, program, a, weight, scale, c, *, m, n, k):
    if m == 0 or n == 0:
        return
    if program.cpu:
        queue = program.nearby(queue, m * n * k // 4)
        size = (-(-m // ROWS), -(-n // (2 * program.vec)))
        program.int8_matmul_cpu(queue, size, (1, 1), a, weight, scale, c, m, n, k)
        return
    multiply(queue, program, a, weight, scale, c, batch=1, m=m, n=n, k=k)
