// mechanism: takes the maximum out until it is being timed
// op: softmax
// expect: wrong
// says: in a timed call | NaN or infinity
extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  static int calls;
  bool careful = ++calls < 12;
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    float most = careful ? -INFINITY : 0;
    double total = 0;
    for (int64_t i = 0; careful && i < cols; ++i) most = fmaxf(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) total += y[i] = expf(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = y[i] / total;
  }
  return 0;
}
