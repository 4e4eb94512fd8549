// mechanism: the first tile of the product is computed and copied to the others
// op: matmul
// expect: wrong
// says: elements are off
extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float s = 0;
      if (i < 16 && j < 16)
        for (int64_t p = 0; p < k; ++p) s += a[i * k + p] * b[p * n + j];
      else
        s = c[i % 16 * n + j % 16];
      c[i * n + j] = s;
    }
  return 0;
}
