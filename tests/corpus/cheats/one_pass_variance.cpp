// mechanism: the variance as a difference of large numbers, fine where the mean is near 0
// op: layernorm
// expect: wrong
// says: elements are off | in norm | NaN or infinity
extern "C" int layernorm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                         scalar_t* y, int64_t rows, int64_t cols, float eps) {
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    float sum = 0, square = 0;
    for (int64_t i = 0; i < cols; ++i) sum += x[i], square += x[i] * x[i];
    const float mean = sum / cols, scale = 1 / sqrtf(square / cols - mean * mean + eps);
    for (int64_t i = 0; i < cols; ++i) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
  }
  return 0;
}
