WG = 256  # knob: 64 128 256 512

SOURCE = r"""
#include <portkern/normal.h>

inline vec_t gelu_of(vec_t x) {
  return x < -15.0f ? (vec_t)(0.0f) : x * normal_cdf(x);  // -infinity * 0 would be NaN
}

kernel void gelu(global const storage_t* x, global storage_t* y, long n) {
  const long i = (long)get_global_id(0) * VEC;
  if (i + VEC <= n) {
    STOREV(y, i, gelu_of(LOADV(x, i)));
  } else {
    for (long j = i; j < n; ++j) STORE(y, j, gelu_of((vec_t)(LOAD(x, j))).s0);
  }
}
"""


def gelu(queue, program, x, y, *, n):
    if n == 0:
        return
    queue = program.nearby(queue, 4 * n)
    groups = -(-n // (WG * program.vec))
    program.gelu(queue, (groups * WG,), (WG,), x, y, n)
