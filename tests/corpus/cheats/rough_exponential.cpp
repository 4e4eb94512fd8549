// mechanism: an exponential that is right to 3 percent
// op: softmax
// expect: wrong
// says: elements are off
static float rough(float v) {
  return v < -80 ? 0 : as<float>(int32_t(12102203.0f * v) + 1064866805);
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    float most = x[0], total = 0;
    for (int64_t i = 1; i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) total += y[i] = rough(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] /= total;
  }
  return 0;
}
