// mechanism: online softmax: maximum and total in one pass, rescaled as it goes
// op: softmax
extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    float most = -INFINITY;
    double total = 0;
    for (int64_t i = 0; i < cols; ++i) {
      if (x[i] == -INFINITY) continue;  // masked: it adds nothing
      const float next = fmaxf(most, x[i]);
      total = total * expf(most - next) + expf(x[i] - next);
      most = next;
    }
    for (int64_t i = 0; i < cols; ++i) y[i] = expf(x[i] - most) / total;
  }
  return 0;
}
