// y = x W' with a weight whose rows are unpacked by `weight.unpack(row, to)`: of few rows of x, each row of the weight
// where it is used; of more, all of the weight, once. FEW and PARALLEL_FROM are knobs of the kernel.
#pragma once
#include <portkern/linear.h>
#include <portkern/rows.h>

namespace packed_linear {
inline float dot(const float* a, const float* b, int64_t n) {
  vec sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    sums[0] += load(a + i) * load(b + i);
    sums[1] += load(a + i + LANES) * load(b + i + LANES);
  }
  for (; i < n; i += LANES) {
    const int64_t count = n - i < LANES ? n - i : LANES;
    sums[0] += load(a + i, count) * load(b + i, count);
  }
  return reduce_add(sums[0] + sums[1]);
}

template <class Weight>
int by_rows(const scalar_t* x, const Weight& weight, scalar_t* y, int64_t m, int64_t n, int64_t k) {
  Scratch<float> given(m * k);
  if (!given.data) return 1;
  for (int64_t i = 0; i < m * k; ++i) given.data[i] = x[i];
  bool failed = false;
#pragma omp parallel if (m * n * k >= PARALLEL_FROM)
  {
    Scratch<float> row(k);
    if (!row.data) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp for schedule(static)
    for (int64_t j = 0; j < n; ++j) {
      if (!row.data) continue;
      weight.unpack(j, row.data);
      for (int64_t i = 0; i < m; ++i) y[i * n + j] = dot(given.data + i * k, row.data, k);
    }
  }
  return failed ? 1 : 0;
}

template <class Weight>
int apply(const scalar_t* x, const Weight& weight, scalar_t* y, int64_t m, int64_t n, int64_t k) {
  if (m == 0 || n == 0) return 0;
  if (m <= FEW) return by_rows(x, weight, y, m, n, k);
  Scratch<scalar_t> whole(n * k);
  if (!whole.data) return 1;
#pragma omp parallel for schedule(static) if (m * n * k >= PARALLEL_FROM)
  for (int64_t j = 0; j < n; ++j) weight.unpack(j, whole.data + j * k);
  return product::apply_layer({x, whole.data, nullptr, y, m, n, k});
}
}  // namespace packed_linear
