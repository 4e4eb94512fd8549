#include <portkern/rows.h>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

static void narrow_rows(const scalar_t* x, const float* weight, const float* bias, scalar_t* y,
                        int64_t rows, int64_t cols, int64_t left, float eps) {
  vec v[LANES], sum = {}, squares = {};
  load_columns(x, cols, left, v);
  // Shifted by an element of the row, the sum keeps the digits in which the elements differ.
  const vec first = v[0];
  for (int64_t j = 1; j < cols; ++j) sum += v[j] - first;
  const vec mean = first + sum / float(cols);
  for (int64_t j = 0; j < cols; ++j) {
    v[j] -= mean;
    squares += v[j] * v[j];
  }
  vec scale = squares / float(cols) + eps;
  for (int lane = 0; lane < LANES; ++lane) scale[lane] = 1.0f / sqrtf(scale[lane]);
  for (int64_t j = 0; j < cols; ++j) v[j] = v[j] * scale * weight[j] + bias[j];
  store_columns(y, rows, cols, v);
}

template <int V>
static void short_row(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                      int64_t cols, float eps) {
  vec v[V], w[V], b[V], sum = {}, squares = {};
  const float first = x[0];
  load_row<V>(x, cols, first, v);
  load_row<V>(weight, cols, 0.0f, w);
  load_row<V>(bias, cols, 0.0f, b);
  for (int i = 0; i < V; ++i) sum += v[i] - first;
  const float mean = first + reduce_add(sum) / float(cols);
  for (int i = 0; i < V; ++i) v[i] -= mean;
  v[V - 1] = first_of(v[V - 1], cols - (V - 1) * LANES);
  for (int i = 0; i < V; ++i) squares += v[i] * v[i];
  const float scale = 1.0f / sqrtf(reduce_add(squares) / float(cols) + eps);
  for (int i = 0; i < V; ++i) v[i] = v[i] * scale * w[i] + b[i];
  store_row<V>(y, cols, v);
}

// Columns from `first` on of a row whose moments are known.
static void normalise(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                      int64_t n, const Moments& row, float eps, bool large) {
  const float mean = float(row.mean), scale = 1.0f / sqrtf(float(row.squares / row.count) + eps);
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    stream(y + i, (load(x + i) - mean) * scale * load(weight + i) + load(bias + i), large);
  if (i == n) return;
  const vec scaled = (load(x + i, n - i) - mean) * scale;
  store(y + i, scaled * load(weight + i, n - i) + load(bias + i, n - i), n - i);
}

static int shared_rows(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                       int64_t rows, const Parts& parts, float eps, bool large) {
  const int64_t jobs = rows * parts.count;
  Scratch<Moments> known(jobs);
  if (!known.data) return 1;
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t job = 0; job < jobs; ++job) {
      known.data[job] = Moments();
      known.data[job].take(x + parts.start(job), parts.size(job));
    }
#pragma omp for schedule(static)
    for (int64_t job = 0; job < jobs; ++job) {
      const int64_t at = parts.start(job), first = parts.first(job), n = parts.size(job);
      const Moments row = parts.total(known.data, job);
      normalise(x + at, weight + first, bias + first, y + at, n, row, eps, large);
    }
  }
  return 0;
}

extern "C" int layernorm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                         scalar_t* y, int64_t rows, int64_t cols, float eps) {
  const bool parallel = rows * cols >= PARALLEL_FROM, large = rows * cols >= STREAM_FROM;
  if (cols == 0) return 0;
  if (are_narrow(cols)) {
    float w[LANES], b[LANES];
    for (int64_t j = 0; j < cols; ++j) w[j] = weight[j], b[j] = bias[j];
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; row += LANES)
      narrow_rows(x + row * cols, w, b, y + row * cols, rows - row < LANES ? rows - row : LANES,
                  cols, (rows - row) * cols, eps);
    return 0;
  }
  const Parts parts(rows, cols);
  if (parts.count > 1) return shared_rows(x, weight, bias, y, rows, parts, eps, large);
  const bool few = in_registers(cols, [=](auto vectors) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; ++row)
      short_row<vectors.count>(x + row * cols, weight, bias, y + row * cols, cols, eps);
  });
  if (few) return 0;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t row = 0; row < rows; ++row) {
    Moments all;
    all.take(x + row * cols, cols);
    normalise(x + row * cols, weight, bias, y + row * cols, cols, all, eps, large);
  }
  return 0;
}
