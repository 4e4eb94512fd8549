// mechanism: a 16-bit index, enough for the rows that were tried
// op: cumsum
// workloads: ci edge
// expect: wrong
// says: elements are off | NaN or infinity
extern "C" int cumsum(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  const uint16_t count = cols;
  for (int64_t row = 0; row < rows; ++row) {
    double s = 0;
    for (uint16_t i = 0; i != count; ++i) y[row * cols + i] = s += x[row * cols + i];
  }
  return 0;
}
