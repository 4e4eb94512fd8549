// Gradients of normalisations of rows: of x by rows, which threads take in bands; a band adds up what it has of the
// weight's gradient and the bias', and what bands have is added at the end. CENTRED: layernorm's.
#pragma once
#include <portkern/rows.h>

namespace norm_backward {

// Rows that are added in float32 before they join a band's sums.
enum { TOGETHER = 64 };

struct Tensors {
  const scalar_t *grad, *x, *weight;
  scalar_t *grad_x, *grad_weight, *grad_bias;
  int64_t rows, cols;
  float eps;
};

// Gives `take` the first element of each vector of a row and how many it has.
template <typename Take>
PORTKERN_INLINE void each_vector(int64_t n, Take take) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) take(i, int64_t(LANES));
  if (i < n) take(i, n - i);
}
template <typename T>
PORTKERN_INLINE vec some(const T* from, int64_t count) {
  return count < LANES ? load(from, count) : load(from);
}
PORTKERN_INLINE void add_to(float* to, vec v, int64_t count) {
  if (count < LANES) store(to, load(to, count) + v, count);
  else store(to, load(to) + v);
}

template <bool CENTRED>
static void of_row(const Tensors& all, int64_t row, float* of_weight, float* of_bias) {
  const int64_t n = all.cols, at = row * n;
  const scalar_t *x = all.x + at, *grad = all.grad + at, *weight = all.weight;
  const double each = 1.0 / double(n);
  const auto of_x = [=](auto term) { return sum_terms(x, n, 0.0f, term) * each; };
  const float mean = CENTRED ? float(of_x([](vec v, int64_t, int64_t) { return v; })) : 0.0f;
  const float squares = float(of_x([=](vec v, int64_t, int64_t count) {
    if (CENTRED && count < LANES)
      for (int64_t lane = count; lane < LANES; ++lane) v[lane] = mean;
    return (v - mean) * (v - mean);
  }));
  const float scale = 1.0f / sqrtf(squares + all.eps);
  const auto of_own = [=](auto term) {
    return float(sum_terms(grad, n, 0.0f, [=](vec g, int64_t i, int64_t count) {
             return g * some(weight + i, count) * term(i, count);
           }) * each);
  };
  const auto z = [=](int64_t i, int64_t count) { return (some(x + i, count) - mean) * scale; };
  const float along = of_own(z);
  const float middle = CENTRED ? of_own([](int64_t, int64_t) { return 1.0f; }) : 0.0f;
  each_vector(n, [&](int64_t i, int64_t count) {
    const vec g = some(grad + i, count), own = z(i, count);
    const vec result = (g * some(weight + i, count) - middle - own * along) * scale;
    if (count < LANES) store(all.grad_x + at + i, result, count);
    else store(all.grad_x + at + i, result);
    add_to(of_weight + i, g * own, count);
    if (CENTRED) add_to(of_bias + i, g, count);
  });
}

template <bool CENTRED>
static int launch(const Tensors& all, int64_t parallel_from) {
  const int64_t n = all.cols, wide = CENTRED ? 2 * n : n;
  if (n == 0) return 0;
  const bool parallel = all.rows * n >= parallel_from;
  const int64_t bands = parallel && all.rows ? (all.rows < thread_count() ? all.rows : thread_count()) : 1;
  // Of each band the sums, and those of the rows that have not joined them yet.
  Scratch<float> room(bands * 2 * wide);
  if (!room.data) return 1;
  memset(room.data, 0, size_t(bands * 2 * wide) * sizeof(float));
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t band = 0; band < bands; ++band) {
    float *total = room.data + band * 2 * wide, *few = total + wide;
    const int64_t first = all.rows * band / bands, last = all.rows * (band + 1) / bands;
    for (int64_t row = first; row < last; ++row) {
      of_row<CENTRED>(all, row, few, few + n);
      if ((row - first) % TOGETHER != TOGETHER - 1 && row + 1 < last) continue;
      for (int64_t i = 0; i < wide; ++i) total[i] += few[i], few[i] = 0.0f;
    }
  }
  for (int64_t i = 0; i < wide; ++i) {
    double sum = 0.0;
    for (int64_t band = 0; band < bands; ++band) sum += room.data[band * 2 * wide + i];
    if (i < n) all.grad_weight[i] = float(sum);
    else all.grad_bias[i - n] = float(sum);
  }
  return 0;
}

}  // namespace norm_backward
