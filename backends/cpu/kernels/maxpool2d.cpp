#include <stdlib.h>

#define PARALLEL_FROM 32768  // knob: 8192 32768 131072

// A row of outputs: first the largest of each column under its windows, then of each window's
// columns; both in vectors. Columns between windows are computed for nothing.

// The greater of the two; a NaN in either wins.
PORTKERN_INLINE vec greater(vec a, vec b) { return a != a ? a : max(a, b); }

static void fill(float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = -INFINITY;
}

static void above(const scalar_t* x, float* line, int64_t w) {
  int64_t i = 0;
  for (; i + LANES <= w; i += LANES) store(line + i, greater(load(x + i), load(line + i)));
  if (i < w) store(line + i, greater(load(x + i, w - i, -INFINITY), load(line + i)));
}

// In place: what is written lies below all that is still to be read.
static void along(float* line, int64_t n, int64_t window) {
  for (int64_t i = 0; i < n; i += LANES) {
    vec most = load(line + i);
    for (int64_t k = 1; k < window; ++k) most = greater(load(line + i + k), most);
    store(line + i, most);
  }
}

extern "C" int maxpool2d(const scalar_t* x, scalar_t* y, int64_t n, int64_t c, int64_t h, int64_t w,
                         int64_t oh, int64_t ow, int64_t window, int64_t stride, int64_t padding) {
  const int64_t places = (ow - 1) * stride + 1, length = w + 2 * padding + window + 2 * LANES;
  int failed = 0;
#pragma omp parallel if (n * c * h * w >= PARALLEL_FROM)
  {
    float* line = static_cast<float*>(malloc(size_t(length) * sizeof(float)));
#pragma omp for schedule(static) reduction(| : failed)
    for (int64_t job = 0; job < n * c * oh; ++job) {
      failed |= !line;
      if (!line) continue;
      const int64_t top = job % oh * stride - padding;
      const int64_t from = top < 0 ? 0 : top, to = top + window < h ? top + window : h;
      const scalar_t* plane = x + job / oh * h * w;
      scalar_t* out = y + job * ow;
      fill(line, length);
      for (int64_t row = from; row < to; ++row) above(plane + row * w, line + padding, w);
      along(line, places, window);
      for (int64_t i = 0; i < ow; ++i) out[i] = line[i * stride];
    }
    free(line);
  }
  return failed;
}
