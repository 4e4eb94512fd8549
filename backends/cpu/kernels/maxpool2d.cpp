#include <stdlib.h>

#include <portkern/windows.h>

#define PARALLEL_FROM 32768  // knob: 8192 32768 131072
#define ROOM 2048            // knob: 1024 2048 4096

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

// The largest from each column on, of which every `stride`-th is a result.
static void from_each_column(const Pool& p, const float* line, float* places) {
  for (int64_t i = 0; i < (p.ow - 1) * p.stride + 1; i += LANES)
    store(places + i, along(line + i, p.window));
}

static void results(const Pool& p, const float* line, scalar_t* out) {
  int64_t i = 0;
  for (; i + LANES <= p.ow; i += LANES) store(out + i, along(line + i, p.window));
  if (i < p.ow) store(out + i, along(line + i, p.window), p.ow - i);
}

// Some rows of outputs of a plane, each step of all of them before the next: to read what was only
// just stored, across two stores, takes several times as long.
static void band(const Pool& p, const scalar_t* plane, int64_t first, int64_t count, float* lines,
                 float* places, scalar_t* out) {
  for (int64_t i = 0; i < count; ++i)
    above(p, plane, Rows(p, first + i), lines + i * p.line() + p.padding);
  for (int64_t i = 0; i < count; ++i)
    if (p.stride == 1) results(p, lines + i * p.line(), out + i * p.ow);
    else from_each_column(p, lines + i * p.line(), places + i * p.line());
  for (int64_t i = 0; p.stride > 1 && i < count; ++i)
    copy_every(p.stride, places + i * p.line(), p.ow, out + i * p.ow);
}

extern "C" int maxpool2d(const scalar_t* x, scalar_t* y, int64_t n, int64_t c, int64_t h, int64_t w,
                         int64_t oh, int64_t ow, int64_t window, int64_t stride, int64_t padding) {
  const Pool p{h, w, ow, window, stride, padding};
  if (oh == 0 || ow == 0) return 0;
  // As many rows as the nearest cache has room for, twice.
  const int64_t fit = ROOM / p.line(), most = fit < 1 ? 1 : fit < oh ? fit : oh;
  const int64_t bands = (oh + most - 1) / most, rows = (oh + bands - 1) / bands;
  int failed = 0;
#pragma omp parallel if (n * c * h * w >= PARALLEL_FROM)
  {
    const int64_t room = rows * p.line();
    float* lines = static_cast<float*>(malloc(size_t(2 * room) * sizeof(float)));
    for (int64_t i = 0; lines && i < room; ++i) lines[i] = -INFINITY;
#pragma omp for schedule(static) reduction(| : failed)
    for (int64_t job = 0; job < n * c * bands; ++job) {
      failed |= !lines;
      if (!lines) continue;
      const int64_t plane = job / bands, first = job % bands * rows;
      const int64_t count = oh - first < rows ? oh - first : rows;
      if (count > 0)
        band(p, x + plane * h * w, first, count, lines, lines + room, y + (plane * oh + first) * ow);
    }
    free(lines);
  }
  return failed;
}
