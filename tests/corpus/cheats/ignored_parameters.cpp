// mechanism: weight and bias are taken for their defaults, 1 and 0
// op: layernorm
// expect: wrong
// says: elements are off
extern "C" int layernorm(const scalar_t* x, const scalar_t*, const scalar_t*, scalar_t* y,
                         int64_t rows, int64_t cols, float eps) {
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < cols; ++i) mean += x[i];
    mean /= cols;
    for (int64_t i = 0; i < cols; ++i) square += (x[i] - mean) * (x[i] - mean);
    const double scale = 1 / sqrt(square / cols + eps);
    for (int64_t i = 0; i < cols; ++i) y[i] = (x[i] - mean) * scale;
  }
  return 0;
}
