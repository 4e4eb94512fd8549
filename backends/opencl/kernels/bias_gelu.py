import numpy

WG = 256  # knob: 64 128 256 512

SOURCE = r"""
#include <portkern/normal.h>

inline vec_t gelu(vec_t x) {
  return x < -15.0f ? (vec_t)(0.0f) : x * normal_cdf(x);  // -infinity * 0 would be NaN
}

#ifndef PORTKERN_CPU
// A work-item has a vector of x, whatever rows it is of.
kernel void bias_gelu(global const storage_t* x, global const storage_t* bias, global storage_t* y,
                      long count, long cols) {
  const long i = (long)get_global_id(0) * VEC;
  if (i >= count) return;
  long at = count <= UINT_MAX ? (uint)i % (uint)cols : i % cols;
  float own[VEC];
  for (int j = 0; j < VEC && !VECTORS(cols); ++j) {
    own[j] = LOAD(bias, at);
    at = at + 1 < cols ? at + 1 : 0;
  }
  const vec_t shift = VECTORS(cols) ? LOADV(bias, at) : PORTKERN_JOIN(vload, VEC)(0, own);
  STOREROW(y, 0, i, count, gelu(LOADROW(x, 0, i, count, 0.0f) + shift));
}
#else
#define SLIM 64

// On a CPU a work-item has `each` elements, whatever rows they are of. Of rows that are slim enough
// the bias is written down so often that a vector can be read at any of its elements.
kernel void bias_gelu_cpu(global const storage_t* x, global const storage_t* bias,
                          global storage_t* y, long count, long cols, long each) {
  const long first = get_global_id(0) * each, last = min(first + each, count);
  long at = first % cols;
  if (cols < SLIM) {
    float again[2 * SLIM + VEC];
    const int period = SLIM / (int)cols * (int)cols;
    for (int i = 0; i < period + VEC; ++i) again[i] = LOAD(bias, i % (int)cols);
    for (long i = first; i < last; i += VEC, at += at + VEC < period ? VEC : VEC - period)
      STOREROW(y, 0, i, last, gelu(LOADROW(x, 0, i, last, 0.0f) + ((floats_t*)(again + at))->v));
    return;
  }
  for (long i = first; i < last;) {
    const long stop = min(i + cols - at, last), begin = i;
    for (; i + VEC <= stop; i += VEC)
      STOREV(y, i, gelu(LOADV(x, i) + LOADV(bias, at + i - begin)));
    if (i < stop)
      STOREROW(y, 0, i, stop,
               gelu(LOADROW(x, 0, i, stop, 0.0f) + LOADROW(bias, 0, at + i - begin, cols, 0.0f)));
    i = stop;
    at = 0;
  }
}
#endif
"""


def bias_gelu(queue, program, x, bias, y, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    count = rows * cols
    if program.cpu:
        queue = program.nearby(queue, 4 * count)
        each = numpy.int64(2048 if count > 1 << 17 else 512)
        program.bias_gelu_cpu(queue, (-(-count // each),), (1,), x, bias, y, count, cols, each)
        return
    groups = -(-count // (WG * program.vec))
    program.bias_gelu(queue, (groups * WG,), (WG,), x, bias, y, count, cols)
