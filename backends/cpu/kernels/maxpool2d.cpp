#include <stdlib.h>

#include <portkern/windows.h>

#define PARALLEL_FROM 32768  // knob: 8192 32768 131072

// A row of outputs: first the largest of each column under its windows, then of each window's
// columns; both in vectors. Columns between windows are computed for nothing.

struct Pool {
  int64_t h, w, ow, window, stride, padding;

  int64_t line() const { return w + 2 * padding + window + 2 * LANES; }
};

// The rows of a window that lie within the image.
struct Rows {
  int64_t from, to;

  Rows(const Pool& p, int64_t output) {
    const int64_t at = output * p.stride - p.padding;
    from = at < 0 ? 0 : at;
    to = at + p.window < p.h ? at + p.window : p.h;
  }
};

// Beside the columns the line stays as it was: below every number.
static void above(const Pool& p, const scalar_t* plane, Rows rows, float* line) {
  int64_t i = 0;
  for (; i + LANES <= p.w; i += LANES) {
    vec most = splat(-INFINITY);
    for (int64_t r = rows.from; r < rows.to; ++r) most = greater(load(plane + r * p.w + i), most);
    store(line + i, most);
  }
  if (i == p.w) return;
  vec most = splat(-INFINITY);
  for (int64_t r = rows.from; r < rows.to; ++r)
    most = greater(load(plane + r * p.w + i, p.w - i, -INFINITY), most);
  store(line + i, most);
}

static void results(const Pool& p, const float* line, float* spare, scalar_t* out) {
  if (p.stride == 1) {
    int64_t i = 0;
    for (; i + LANES <= p.ow; i += LANES) store(out + i, along(line + i, p.window));
    if (i < p.ow) store(out + i, along(line + i, p.window), p.ow - i);
    return;
  }
  const int64_t places = (p.ow - 1) * p.stride + 1;
  for (int64_t i = 0; i < places; i += LANES) store(spare + i, along(line + i, p.window));
  copy_every(p.stride, spare, p.ow, out);
}

extern "C" int maxpool2d(const scalar_t* x, scalar_t* y, int64_t n, int64_t c, int64_t h, int64_t w,
                         int64_t oh, int64_t ow, int64_t window, int64_t stride, int64_t padding) {
  const Pool p{h, w, ow, window, stride, padding};
  int failed = 0;
#pragma omp parallel if (n * c * h * w >= PARALLEL_FROM)
  {
    float* line = static_cast<float*>(malloc(size_t(2 * p.line()) * sizeof(float)));
    for (int64_t i = 0; line && i < p.line(); ++i) line[i] = -INFINITY;
#pragma omp for schedule(static) reduction(| : failed)
    for (int64_t job = 0; job < n * c * oh; ++job) {
      failed |= !line;
      if (!line) continue;
      const Rows rows(p, job % oh);
      const scalar_t* plane = x + job / oh * h * w;
      above(p, plane, rows, line + padding);
      results(p, line, line + p.line(), y + job * ow);
    }
    free(line);
  }
  return failed;
}
