#include <portkern/rows.h>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

static void narrow_rows(const scalar_t* x, const float* weight, scalar_t* y, int64_t rows,
                        int64_t cols, int64_t left, float eps) {
  vec v[LANES], squares = {};
  load_columns(x, cols, left, v);
  for (int64_t j = 0; j < cols; ++j) squares += v[j] * v[j];
  vec scale = squares / float(cols) + eps;
  for (int lane = 0; lane < LANES; ++lane) scale[lane] = 1.0f / sqrtf(scale[lane]);
  for (int64_t j = 0; j < cols; ++j) v[j] = v[j] * scale * weight[j];
  store_columns(y, rows, cols, v);
}

static double sum_of_squares(const scalar_t* x, int64_t n) {
  return sum_terms(x, n, 0.0f, [](vec v, int64_t, int64_t) { return v * v; });
}

static float scale_of(double squares, int64_t cols, float eps) {
  return 1.0f / sqrtf(float(squares / double(cols)) + eps);
}

template <int V>
static void short_row(const scalar_t* x, const scalar_t* weight, scalar_t* y, int64_t cols,
                      float eps) {
  vec v[V], w[V], squares = {};
  load_row<V>(x, cols, 0.0f, v);
  load_row<V>(weight, cols, 0.0f, w);
  for (int i = 0; i < V; ++i) squares += v[i] * v[i];
  const float scale = scale_of(reduce_add(squares), cols, eps);
  for (int i = 0; i < V; ++i) v[i] = v[i] * scale * w[i];
  store_row<V>(y, cols, v);
}

static void normalise(const scalar_t* x, const scalar_t* weight, scalar_t* y, int64_t n, float scale,
                      bool large) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) stream(y + i, load(x + i) * scale * load(weight + i), large);
  if (i < n) store(y + i, load(x + i, n - i) * scale * load(weight + i, n - i), n - i);
}

static int shared_rows(const scalar_t* x, const scalar_t* weight, scalar_t* y, int64_t rows,
                       const Parts& parts, float eps, bool large) {
  const int64_t jobs = rows * parts.count;
  Scratch<Total> known(jobs);
  if (!known.data) return 1;
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t job = 0; job < jobs; ++job)
      known.data[job] = {sum_of_squares(x + parts.start(job), parts.size(job))};
#pragma omp for schedule(static)
    for (int64_t job = 0; job < jobs; ++job) {
      const int64_t at = parts.start(job), n = parts.size(job);
      const float scale = scale_of(parts.total(known.data, job).sum, parts.cols, eps);
      normalise(x + at, weight + parts.first(job), y + at, n, scale, large);
    }
  }
  return 0;
}

extern "C" int rmsnorm(const scalar_t* x, const scalar_t* weight, scalar_t* y, int64_t rows,
                       int64_t cols, float eps) {
  const bool parallel = rows * cols >= PARALLEL_FROM, large = rows * cols >= STREAM_FROM;
  if (cols == 0) return 0;
  if (are_narrow(cols)) {
    float w[LANES];
    for (int64_t j = 0; j < cols; ++j) w[j] = weight[j];
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; row += LANES)
      narrow_rows(x + row * cols, w, y + row * cols, rows - row < LANES ? rows - row : LANES, cols,
                  (rows - row) * cols, eps);
    return 0;
  }
  const Parts parts(rows, cols);
  if (parts.count > 1) return shared_rows(x, weight, y, rows, parts, eps, large);
  const bool few = in_registers(cols, [=](auto vectors) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; ++row)
      short_row<vectors.count>(x + row * cols, weight, y + row * cols, cols, eps);
  });
  if (few) return 0;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t row = 0; row < rows; ++row) {
    const float scale = scale_of(sum_of_squares(x + row * cols, cols), cols, eps);
    normalise(x + row * cols, weight, y + row * cols, cols, scale, large);
  }
  return 0;
}
