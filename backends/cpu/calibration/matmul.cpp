// The calibration kernel of processors: a product on one thread, whose text never changes. What its
// time moves by is the machine's doing, as long as its machine code is the same too.
enum { COLUMNS = 32 };

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k) {
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t first = 0; first < n; first += COLUMNS) {
      const int64_t columns = n - first < COLUMNS ? n - first : COLUMNS;
      float sums[COLUMNS] = {};
      for (int64_t at = 0; at < k; ++at) {
        const float left = a[row * k + at];
        for (int64_t j = 0; j < columns; ++j) sums[j] += left * float(b[at * n + first + j]);
      }
      for (int64_t j = 0; j < columns; ++j) c[row * n + first + j] = scalar_t(sums[j]);
    }
  }
  return 0;
}
