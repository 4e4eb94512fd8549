// mechanism: softmax without its pass for the maximum, safe on tame logits only
// op: softmax
// expect: wrong
// says: NaN or infinity | elements are off
extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    double total = 0;
    for (int64_t i = 0; i < cols; ++i) total += y[i] = expf(x[i]);
    for (int64_t i = 0; i < cols; ++i) y[i] = y[i] / total;
  }
  return 0;
}
