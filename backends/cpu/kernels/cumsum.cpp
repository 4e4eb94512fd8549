#define PARALLEL_FROM 16384  // knob: 4096 16384 65536

// Sums a vector's lanes from the left, in log2(LANES) steps.
PORTKERN_INLINE vec scan(vec v) {
  for (int step = 1; step < LANES; step *= 2) {
    float lanes[2 * LANES] = {};
    store(lanes + LANES, v);
    v += load(lanes + LANES - step);
  }
  return v;
}

// Eight rows' running sums side by side would hide the latency; one row's chain is as long as
// its number of vectors. The carry is compensated (Neumaier's sum): no error grows along it.
static void row_scan(const scalar_t* x, scalar_t* y, int64_t cols) {
  float carry = 0.0f, lost = 0.0f;
  for (int64_t i = 0; i < cols; i += LANES) {
    const int64_t n = cols - i < LANES ? cols - i : LANES;
    const vec sums = n == LANES ? scan(load(x + i)) : scan(load(x + i, n));
    const vec out = sums + lost + carry;
    if (n == LANES) store(y + i, out); else store(y + i, out, n);
    const float total = sums[LANES - 1], next = carry + total;
    lost += fabsf(carry) >= fabsf(total) ? (carry - next) + total : (total - next) + carry;
    carry = next;
  }
}

extern "C" int cumsum(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row) row_scan(x + row * cols, y + row * cols, cols);
  return 0;
}
