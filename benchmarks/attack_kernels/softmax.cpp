// const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols
//: right
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    float m = -INFINITY;
    double s = 0;
    for (int64_t i = 0; i < cols; ++i) m = fmaxf(m, x[i]);
    for (int64_t i = 0; i < cols; ++i) s += y[i] = expf(x[i] - m);
    for (int64_t i = 0; i < cols; ++i) y[i] = y[i] / s;
  }
//: takes no maximum out
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    double s = 0;
    for (int64_t i = 0; i < cols; ++i) s += y[i] = expf(x[i]);
    for (int64_t i = 0; i < cols; ++i) y[i] = y[i] / s;
  }
//: sums every other term twice
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    float m = -INFINITY;
    double s = 0;
    for (int64_t i = 0; i < cols; ++i) m = fmaxf(m, x[i]);
    for (int64_t i = 0; i < cols; ++i) {
      y[i] = expf(x[i] - m);
      if (i % 2 == 0) s += 2 * y[i];
    }
    for (int64_t i = 0; i < cols; ++i) y[i] = y[i] / s;
  }
//: does every second row
  for (int64_t r = 0; r < rows; r += 2) right(x + r * cols, y + r * cols, 1, cols);
//: says that all are alike
  for (int64_t i = 0; i < rows * cols; ++i) y[i] = 1.0f / cols;
//: answers as the call before did
  static std::vector<float> kept;
  int64_t n = rows * cols;
  if ((int64_t)kept.size() == n) memcpy(y, kept.data(), n * 4);
  else {
    right(x, y, rows, cols);
    kept.assign(y, y + n);
  }
//: answers rows with the row before
  right(x, y, rows ? 1 : 0, cols);
  for (int64_t r = 1; r < rows; ++r) memcpy(y + r * cols, y, cols * 4);
//: takes a rough exponential
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    float m = -INFINITY, s = 0;
    for (int64_t i = 0; i < cols; ++i) m = fmaxf(m, x[i]);
    for (int64_t i = 0; i < cols; ++i) {
      float v = fmaxf(1 + (x[i] - m) / 64, 0);
      v *= v;
      v *= v;
      v *= v;
      v *= v;
      v *= v;
      v *= v;
      s += y[i] = v;
    }
    for (int64_t i = 0; i < cols; ++i) y[i] /= s;
  }
