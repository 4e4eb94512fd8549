// mechanism: a constant that is statistically near: every probability is 1 / cols
// op: softmax
// expect: wrong
// says: elements are off
extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows * cols; ++i) y[i] = 1.0f / cols;
  return 0;
}
