#include <portkern/rows.h>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

// The sum, and what its squares add up to.
static double add_part(const scalar_t* x, const scalar_t* residual, scalar_t* total, int64_t n) {
  double squares = 0.0;
  for (int64_t i = 0; i < n; i += ROW_BLOCK) {
    const int64_t end = n - i < ROW_BLOCK ? n : i + ROW_BLOCK;
    vec sums[2] = {};
    int64_t j = i;
    const auto take = [&](vec v, int64_t count) {
      if (count < LANES) store(total + j, v, count), v = load(total + j, count);
      else store(total + j, v), v = load(total + j);
      return v * v;
    };
    for (; j + 2 * LANES <= end; j += LANES) {
      sums[0] += take(load(x + j) + load(residual + j), LANES), j += LANES;
      sums[1] += take(load(x + j) + load(residual + j), LANES);
    }
    for (; j < end; j += LANES) {
      const int64_t count = end - j < LANES ? end - j : LANES;
      sums[0] += take(load(x + j, count) + load(residual + j, count), count);
    }
    squares += reduce_add(sums[0] + sums[1]);
  }
  return squares;
}

static void scale_part(const scalar_t* total, const scalar_t* weight, scalar_t* y, int64_t n, float scale,
                       bool large) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) stream(y + i, load(total + i) * scale * load(weight + i), large);
  if (i < n) store(y + i, load(total + i, n - i) * scale * load(weight + i, n - i), n - i);
}

extern "C" int add_rmsnorm(const scalar_t* x, const scalar_t* residual, const scalar_t* weight, scalar_t* y,
                           scalar_t* total, int64_t rows, int64_t cols, float eps) {
  if (rows == 0 || cols == 0) return 0;
  const bool parallel = rows * cols >= PARALLEL_FROM, large = rows * cols >= STREAM_FROM;
  const Parts parts(rows, cols);
  const int64_t jobs = rows * parts.count;
  Scratch<Total> known(jobs);
  if (!known.data) return 1;
  const auto scale_of = [=](double squares) { return 1.0f / sqrtf(float(squares / double(cols)) + eps); };
#pragma omp parallel if (parallel)
  {
#pragma omp for schedule(static)
    for (int64_t job = 0; job < jobs; ++job) {
      const int64_t at = parts.start(job), n = parts.size(job);
      known.data[job] = {add_part(x + at, residual + at, total + at, n)};
      if (parts.count == 1) scale_part(total + at, weight, y + at, n, scale_of(known.data[job].sum), large);
    }
    if (parts.count > 1) {
#pragma omp for schedule(static)
      for (int64_t job = 0; job < jobs; ++job) {
        const int64_t at = parts.start(job);
        const float scale = scale_of(parts.total(known.data, job).sum);
        scale_part(total + at, weight + parts.first(job), y + at, parts.size(job), scale, large);
      }
    }
  }
  return 0;
}
