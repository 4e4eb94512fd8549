import numpy

WG = 256  # knob: 64 128 256 512

SOURCE = r"""
// Local rows are rows of y; along a row each work-item makes an element, then those `step` later.
// On a CPU one work-item makes a row, and VEC elements at once where their windows are inside of x.
kernel void maxpool2d(global const storage_t* x, global storage_t* y, long planes, int h, int w,
                      int oh, int ow, int window, int stride, int padding) {
  const long row = (long)get_group_id(0) * get_local_size(1) + get_local_id(1);
  if (row >= planes * oh) return;
  const long plane = row / oh;
  const int top = (int)(row - plane * oh) * stride - padding;
  const int above = max(top, 0), below = min(top + window, h), step = get_local_size(0);
  global const storage_t* image = x + plane * h * w;
  for (int column = get_local_id(0); column < ow; column += step) {
    const int left = column * stride - padding;
#ifdef PORTKERN_CPU
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
#endif
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
"""


def maxpool2d(queue, program, x, y, *, n, c, h, w, oh, ow, window, stride, padding):
    planes = n * c
    if planes * oh * ow == 0:
        return
    across = 1 if program.cpu else min(WG, 1 << int(ow - 1).bit_length())
    down = WG // across
    size = (-(-(planes * oh) // down) * across, down)
    sizes = map(numpy.int32, (h, w, oh, ow, window, stride, padding))
    program.maxpool2d(queue, size, (across, down), x, y, planes, *sizes)
