// mechanism: counts its calls and takes two right ways in turns, as who tunes while it runs does
// op: softmax
extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  static unsigned calls;
  bool backwards = ++calls % 2;
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmaxf(most, x[backwards ? cols - 1 - i : i]);
    for (int64_t i = 0; i < cols; ++i) sum += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = y[i] / sum;
  }
  return 0;
}
