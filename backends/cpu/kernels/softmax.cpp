#include <portkern/rows.h>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define ROOM 16384           // knob: 1024 4096 16384 65536

static void narrow_rows(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t left) {
  vec e[LANES], sum = {};
  load_columns(x, cols, left, e);
  vec top = e[0];
  for (int64_t j = 1; j < cols; ++j) top = max(e[j], top);
  for (int64_t j = 0; j < cols; ++j) sum += e[j] = exp(e[j] - top);
  const vec scale = 1.0f / sum;
  for (int64_t j = 0; j < cols; ++j) e[j] *= scale;
  store_columns(y, rows, cols, e);
}

template <int V>
static void short_row(const scalar_t* x, scalar_t* y, int64_t cols) {
  vec e[V], top = splat(-INFINITY), sum = {};
  load_row<V>(x, cols, -INFINITY, e);
  for (int i = 0; i < V; ++i) top = max(e[i], top);
  const float most = reduce_max(top);
  for (int i = 0; i < V; ++i) sum += e[i] = exp(e[i] - most);
  const float scale = 1.0f / reduce_add(sum);
  for (int i = 0; i < V; ++i) e[i] *= scale;
  store_row<V>(y, cols, e);
}

// A float32 output has room for a part's terms; a half would round them.
PORTKERN_INLINE float* room(float* y, int64_t) { return y; }
PORTKERN_INLINE float* room(void*, int64_t n) {
  static thread_local float terms[ROOM];
  return n <= ROOM ? terms : nullptr;
}

// What is known of a part, whose terms are kept where there is room.
static Powers powers_of(const scalar_t* x, float* terms, int64_t n) {
  Powers part;
  if (!terms) {
    part.take(x, n);
    return part;
  }
  part.top = block_max(x, n);
  const float top = finite_or_zero(part.top);
  part.sum = sum_terms(x, n, -INFINITY, [=](vec v, int64_t i, int64_t count) {
    const vec e = exp(v - top);
    if (count == LANES) store(terms + i, e);
    else store(terms + i, e, count);
    return e;
  });
  return part;
}

static void scale_terms(const float* terms, scalar_t* y, int64_t n, float scale) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) store(y + i, load(terms + i) * scale);
  if (i < n) store(y + i, load(terms + i, n - i) * scale, n - i);
}

static void powers_again(const scalar_t* x, scalar_t* y, int64_t n, float top, float scale) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) store(y + i, exp(load(x + i) - top) * scale);
  if (i < n) store(y + i, exp(load(x + i, n - i) - top) * scale, n - i);
}

static void whole_row(const scalar_t* x, scalar_t* y, int64_t cols) {
  float* terms = room(y, cols);
  const Powers row = powers_of(x, terms, cols);
  const float scale = float(1.0 / row.sum);
  if (terms) scale_terms(terms, y, cols, scale);
  else powers_again(x, y, cols, finite_or_zero(row.top), scale);
}

// Each part's terms are of its own largest element, until all parts are known.
static int shared_rows(const scalar_t* x, scalar_t* y, int64_t rows, const Parts& parts) {
  constexpr bool keeps = sizeof(scalar_t) == sizeof(float);
  const int64_t jobs = rows * parts.count;
  Scratch<Powers> known(jobs);
  if (!known.data) return 1;
#pragma omp parallel
  {
#pragma omp for schedule(static)
    for (int64_t job = 0; job < jobs; ++job) {
      const int64_t at = parts.start(job);
      known.data[job] = powers_of(x + at, keeps ? room(y + at, 0) : nullptr, parts.size(job));
    }
#pragma omp for schedule(static)
    for (int64_t job = 0; job < jobs; ++job) {
      const int64_t at = parts.start(job), n = parts.size(job);
      const Powers row = parts.total(known.data, job);
      const float top = finite_or_zero(row.top), own = finite_or_zero(known.data[job].top);
      const float scale = float(1.0 / row.sum);
      if (keeps) scale_terms(room(y + at, 0), y + at, n, expf(own - top) * scale);
      else powers_again(x + at, y + at, n, top, scale);
    }
  }
  return 0;
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  const bool parallel = rows * cols >= PARALLEL_FROM;
  if (cols == 0) return 0;
  if (are_narrow(cols)) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; row += LANES)
      narrow_rows(x + row * cols, y + row * cols, rows - row < LANES ? rows - row : LANES, cols,
                  (rows - row) * cols);
    return 0;
  }
  const Parts parts(rows, cols);
  if (parts.count > 1) return shared_rows(x, y, rows, parts);
  const bool few = in_registers(cols, [=](auto vectors) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; ++row)
      short_row<vectors.count>(x + row * cols, y + row * cols, cols);
  });
  if (few) return 0;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t row = 0; row < rows; ++row) whole_row(x + row * cols, y + row * cols, cols);
  return 0;
}
