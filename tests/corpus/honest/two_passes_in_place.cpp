// mechanism: the output serves as its scratch: written, read and written again
// op: layernorm
extern "C" int layernorm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                         scalar_t* y, int64_t rows, int64_t cols, float eps) {
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < cols; ++i) mean += x[i];
    mean /= cols;
    for (int64_t i = 0; i < cols; ++i) {
      y[i] = x[i] - mean;
      square += double(y[i]) * y[i];
    }
    const double scale = 1 / sqrt(square / cols + eps);
    for (int64_t i = 0; i < cols; ++i) y[i] = y[i] * scale * weight[i] + bias[i];
  }
  return 0;
}
