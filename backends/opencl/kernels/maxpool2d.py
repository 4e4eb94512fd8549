import numpy

WG = 256  # knob: 64 128 256 512

SOURCE = r"""
#ifdef PORTKERN_CPU
#define LINE 1024  // elements of a line of windows at a time

inline vec_t larger(vec_t most, vec_t v) {  // a NaN is the largest
  return (most != most) | (v <= most) ? most : v;
}

// Columns `left` to `left + span` of `window` lines of an image from `top` on: the largest of each,
// and -infinity where there is none. An edge is seen twice instead of what is beyond it.
inline void tops_of(float* tops, global const storage_t* image, int top, int left, int span, int h,
                    int w, int window) {
  for (int j = left; j < 0 && j < left + span; ++j) tops[j - left] = -INFINITY;
  const int first = max(left, 0), last = min(left + span, w);
  for (int j = first; j < last; j += VEC) {
    if (j + VEC > w && w - VEC >= first) j = w - VEC;  // some again, rather than one by one
    vec_t most = -INFINITY;
    for (int i = 0; i < window; ++i)
      most = larger(most, LOADROW(image, (long)clamp(top + i, 0, h - 1) * w, j, w, -INFINITY));
    *(floats_t*)(tops + j - left) = (floats_t){most};
  }
  for (int j = max(w - left, 0); j < span; ++j) tops[j] = -INFINITY;
}

// On a CPU one work-item makes a row, a stretch at a time: first the largest of each column of the
// windows, then the largest of their neighbours, both as vectors.
kernel void maxpool2d_cpu(global const storage_t* x, global storage_t* y, long planes, int h,
                          int w, int oh, int ow, int window, int stride, int padding) {
  const long row = (long)get_group_id(0) * get_local_size(1) + get_local_id(1);
  if (row >= planes * oh) return;
  const long plane = row / oh;
  const int top = (int)(row - plane * oh) * stride - padding;
  const int side = min(window, LINE), each = (LINE - side) / stride + 1;
  global const storage_t* image = x + plane * h * w;
  float tops[LINE + 3 * VEC];
  for (int column = 0; column < ow; column += each) {
    const int count = min(each, ow - column), left = column * stride - padding;
    tops_of(tops, image, top, left, (count - 1) * stride + side, h, w, window);
    for (int c = 0; c < count; c += VEC) {
      vec_t most = -INFINITY;
      const int most_far = (count - 1 - c) * stride;
      for (int q = 0; q < side; ++q) {
        const float* from = tops + c * stride + q;
        vec_t v;
        if (stride == 1) {
          v = ((floats_t*)from)->v;
        } else if (stride == 2) {
          v = (vec_t)(((floats_t*)from)->v.even, ((floats_t*)(from + VEC))->v.even);
        } else {
#pragma unroll
          for (int l = 0; l < VEC; ++l) ((float*)&v)[l] = from[min(l * stride, most_far)];
        }
        most = larger(most, v);
      }
      for (int q = side; q < window; q += LINE) {  // then it is one column
        tops_of(tops, image, top, left + q, min(LINE, window - q), h, w, window);
        for (int l = 0; l < min(LINE, window - q); ++l) most = larger(most, (vec_t)(tops[l]));
      }
      STOREROW(y, row * ow + column, c, count, most);
    }
  }
}
#else
// A window that reaches into the padding sees the edge twice instead, which changes no maximum: so
// all loads are without conditions, and in flight together where `window` is a constant.
static inline float __attribute__((always_inline)) largest(global const storage_t* x, long plane,
                                                           int top, int left, int h, int w,
                                                           const int window) {
  float most = -INFINITY;
#pragma unroll
  for (int i = 0; i < window; ++i) {
    const long line = (plane * h + clamp(top + i, 0, h - 1)) * w;
#pragma unroll
    for (int j = 0; j < window; ++j) {
      const float v = LOAD(x, line + clamp(left + j, 0, w - 1));
      most = v > most || v != v ? v : most;  // a NaN is the largest
    }
  }
  return most;
}

// An element of y, whatever row it is of. With few of them, positions come by divisions of 32 bits.
kernel void maxpool2d(global const storage_t* x, global storage_t* y, long count, int h, int w,
                      int oh, int ow, int window, int stride, int padding) {
  const long e = get_global_id(0);
  if (e >= count) return;
  const long row = count >> 31 ? e / ow : (uint)e / (uint)ow;
  const long plane = count >> 31 ? row / oh : (uint)row / (uint)oh;
  const int top = (int)(row - plane * oh) * stride - padding;
  const int left = (int)(e - row * ow) * stride - padding;
  float most;
  if (window == 2) most = largest(x, plane, top, left, h, w, 2);
  else if (window == 3) most = largest(x, plane, top, left, h, w, 3);
  else most = largest(x, plane, top, left, h, w, window);
  STORE(y, e, most);
}
#endif
"""


def maxpool2d(queue, program, x, y, *, n, c, h, w, oh, ow, window, stride, padding):
    planes = n * c
    count = planes * oh * ow
    if count == 0:
        return
    sizes = tuple(map(numpy.int32, (h, w, oh, ow, window, stride, padding)))
    if program.cpu:
        queue = program.nearby(queue, count * window * window)
        size = (-(-(planes * oh) // WG), WG)
        program.maxpool2d_cpu(queue, size, (1, WG), x, y, planes, *sizes)
        return
    size = (-(-count // WG) * WG,)
    program.maxpool2d(queue, size, (WG,), x, y, count, *sizes)
