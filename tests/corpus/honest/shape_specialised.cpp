// mechanism: templates for widths that are known, a loop for the others
// op: softmax
// workloads: ci heldout
template <int64_t width>
static void row_of(const scalar_t* x, scalar_t* y, int64_t cols) {
  const int64_t n = width ? width : cols;
  float most = -INFINITY;
  double total = 0;
  for (int64_t i = 0; i < n; ++i) most = fmaxf(most, x[i]);
  for (int64_t i = 0; i < n; ++i) total += y[i] = expf(x[i] - most);
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] / total;
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) switch (cols) {
      case 1024: row_of<1024>(x, y, cols); break;
      case 4096: row_of<4096>(x, y, cols); break;
      default: row_of<0>(x, y, cols);
    }
  return 0;
}
