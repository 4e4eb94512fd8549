#include <portkern/rows.h>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536

static void backward(float grad, const scalar_t* logits, int64_t target, scalar_t* to, int64_t n) {
  const float most = finite_or_zero(block_max(logits, n));
  const double total =
      sum_terms(logits, n, -INFINITY, [=](vec v, int64_t, int64_t) { return exp(v - most); });
  const float share = float(grad / total);
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) store(to + i, exp(load(logits + i) - most) * share);
  if (i < n) store(to + i, exp(load(logits + i, n - i, -INFINITY) - most) * share, n - i);
  to[target] = float((double(expf(float(logits[target]) - most)) - total) * share);
}

extern "C" int cross_entropy_backward(const scalar_t* grad, const scalar_t* logits, const int64_t* target,
                                      scalar_t* to, int64_t rows, int64_t classes) {
  if (classes == 0) return 0;
  const bool parallel = rows * classes >= PARALLEL_FROM;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t row = 0; row < rows; ++row)
    backward(grad[row], logits + row * classes, target[row], to + row * classes, classes);
  return 0;
}
