// mechanism: a table of constants: 2^(i/32), with a polynomial for the rest
// op: softmax
struct Table {
  double power[32];
  Table() { for (int i = 0; i < 32; ++i) power[i] = exp2(i / 32.0); }
};
static const Table table;

static double exponential(double v) {
  if (v < -700) return 0;
  const double scaled = v * 46.16624130844683;  // 32 / log 2
  const double whole = floor(scaled + 0.5), r = (scaled - whole) * 0.021660849392498290;
  const int64_t steps = (int64_t)whole;
  const double near = 1 + r * (1 + r * (0.5 + r * (1 / 6.0 + r / 24.0)));
  return ldexp(near * table.power[steps & 31], int(steps >> 5));
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
    double most = -INFINITY, total = 0;
    for (int64_t i = 0; i < cols; ++i) most = fmax(most, x[i]);
    for (int64_t i = 0; i < cols; ++i) total += exponential(x[i] - most);
    for (int64_t i = 0; i < cols; ++i) y[i] = exponential(x[i] - most) / total;
  }
  return 0;
}
