#include <portkern/rows.h>

#define PARALLEL_FROM 32768  // knob: 8192 32768 131072

// The greatest that each lane has met, and in which vector of the row. A NaN stays.
struct Best {
  vec value = splat(-INFINITY);
  ivec step = {};

  void take(vec v, int32_t now) {
    const ivec keep = (v <= value) | (value != value);
    value = keep ? value : v;
    step = keep ? step : now - ivec{};
  }
  // Of elements that were met in no order.
  void take(const Best& other) {
    const ivec first = other.step < step, nan = value != value, other_nan = other.value != other.value;
    const ivec better = (other.value > value) & ~nan, equal = (other.value == value) & first;
    const ivec take = better | equal | (other_nan & (~nan | first));
    value = take ? other.value : value;
    step = take ? other.step : step;
  }
};

struct Element {
  float value;
  int64_t index;

  // Parts come in order: of equal elements the first stays.
  void take(const Element& later) {
    if (value == value && (later.value > value || later.value != later.value)) *this = later;
  }
};

static Element in_lanes(const Best& best) {
  const ivec nan = best.value != best.value;
  const bool has_nan = reduce_max(nan ? splat(1.0f) : vec{}) > 0.0f;
  const vec zero = {};
  const float most = has_nan ? NAN : reduce_max(best.value);
  const ivec wanted = has_nan ? nan : best.value == most + zero;
  Element found = {most, INT64_MAX};
  for (int lane = 0; lane < LANES; ++lane) {
    const int64_t at = int64_t(best.step[lane]) * LANES + lane;
    found.index = wanted[lane] && at < found.index ? at : found.index;
  }
  return found;
}

static Element argmax_of(const scalar_t* x, int64_t n) {
  // Two, because a comparison waits for the one before it. Lanes that meet nothing above -infinity
  // say so of vector 0: of such a row the answer is 0.
  Best best[2];
  const int64_t vectors = n / LANES;
  int64_t i = 0;
  for (; i + 2 <= vectors; i += 2) {
    best[0].take(load(x + i * LANES), int32_t(i));
    best[1].take(load(x + (i + 1) * LANES), int32_t(i + 1));
  }
  for (; i * LANES < n; ++i) {
    const int64_t left = n - i * LANES;
    best[0].take(left < LANES ? load(x + i * LANES, left, -INFINITY) : load(x + i * LANES),
                 int32_t(i));
  }
  best[0].take(best[1]);
  return in_lanes(best[0]);
}

static void narrow_rows(const scalar_t* x, int64_t* index, int64_t rows, int64_t cols, int64_t left) {
  vec v[LANES];
  Best best;
  load_columns(x, cols, left, v);
  for (int64_t j = 0; j < cols; ++j) best.take(v[j], int32_t(j));
  for (int64_t r = 0; r < rows; ++r) index[r] = best.step[r];
}

extern "C" int argmax(const scalar_t* x, int64_t* index, int64_t rows, int64_t cols) {
  const bool parallel = rows * cols >= PARALLEL_FROM;
  if (cols == 1) {
    memset(index, 0, size_t(rows) * sizeof(*index));
    return 0;
  }
  if (are_narrow(cols)) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; row += LANES)
      narrow_rows(x + row * cols, index + row, rows - row < LANES ? rows - row : LANES, cols,
                  (rows - row) * cols);
    return 0;
  }
  const Parts parts(rows, cols);
  if (parts.count == 1) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; ++row) index[row] = argmax_of(x + row * cols, cols).index;
    return 0;
  }
  Scratch<Element> known(rows * parts.count);
  if (!known.data) return 1;
#pragma omp parallel for schedule(static)
  for (int64_t job = 0; job < rows * parts.count; ++job) {
    known.data[job] = argmax_of(x + parts.start(job), parts.size(job));
    known.data[job].index += parts.first(job);
  }
  for (int64_t row = 0; row < rows; ++row)
    index[row] = parts.total(known.data, row * parts.count).index;
  return 0;
}
