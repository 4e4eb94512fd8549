import numpy

WG = 256  # knob: 64 128 256 512

SOURCE = r"""
#ifdef PORTKERN_CPU
// On a CPU one work-item makes a row, and VEC elements at once where their windows are inside of x.
kernel void maxpool2d_cpu(global const storage_t* x, global storage_t* y, long planes, int h,
                          int w, int oh, int ow, int window, int stride, int padding) {
  const long row = (long)get_group_id(0) * get_local_size(1) + get_local_id(1);
  if (row >= planes * oh) return;
  const long plane = row / oh;
  const int top = (int)(row - plane * oh) * stride - padding;
  const int above = max(top, 0), below = min(top + window, h);
  global const storage_t* image = x + plane * h * w;
  for (int column = 0; column < ow; ++column) {
    const int left = column * stride - padding;
    const bool inside = left >= 0 && left + window + 2 * VEC - 2 < w && column + VEC <= ow;
    if (inside && stride <= 2) {
      vec_t most = -INFINITY;
      for (int i = above; i < below; ++i)
        for (int j = left; j < left + window; ++j) {
          const vec_t v = LOADV(image, (long)i * w + j), next = LOADV(image, (long)i * w + j + VEC);
          const vec_t each = stride == 1 ? v : (vec_t)(v.even, next.even);
          most = each > most | each != each ? each : most;  // a NaN is the largest
        }
      STOREV(y, row * ow + column, most);
      column += VEC - 1;
      continue;
    }
    const int from = max(left, 0), to = min(left + window, w);
    float most = -INFINITY;
    for (int i = above; i < below; ++i)
      for (int j = from; j < to; ++j) {
        const float v = LOAD(image, (long)i * w + j);
        most = v > most || v != v ? v : most;
      }
    STORE(y, row * ow + column, most);
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
