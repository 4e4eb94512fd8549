// mechanism: the right factor is packed into columns first, in every call
// op: matmul
#include <vector>

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k) {
  std::vector<float> packed(n * k);
  for (int64_t p = 0; p < k; ++p)
    for (int64_t j = 0; j < n; ++j) packed[j * k + p] = b[p * n + j];
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float s = 0;
      for (int64_t p = 0; p < k; ++p) s += a[i * k + p] * packed[j * k + p];
      c[i * n + j] = s;
    }
  return 0;
}
