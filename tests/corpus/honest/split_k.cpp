// mechanism: split-K: partial products in a workspace, added up at the end
// op: matmul
#include <vector>

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k) {
  constexpr int64_t splits = 4;
  std::vector<float> partial(splits * m * n, 0.0f);
  for (int64_t s = 0; s < splits; ++s)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t p = k * s / splits; p < k * (s + 1) / splits; ++p)
        for (int64_t j = 0; j < n; ++j)
          partial[(s * m + i) * n + j] += a[i * k + p] * b[p * n + j];
  for (int64_t i = 0; i < m * n; ++i) {
    float sum = 0;
    for (int64_t s = 0; s < splits; ++s) sum += partial[s * m * n + i];
    c[i] = sum;
  }
  return 0;
}
