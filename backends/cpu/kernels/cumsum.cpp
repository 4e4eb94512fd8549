#define PARALLEL_FROM 16384  // knob: 4096 16384 65536

// The running sum of a vector's lanes, in log2(LANES) steps.
PORTKERN_INLINE vec scan(vec v) {
  v += shift_lanes<1>(v);
  v += shift_lanes<2>(v);
  if (LANES > 4) v += shift_lanes<4>(v);
  if (LANES > 8) v += shift_lanes<8>(v);
  return v;
}

// What earlier vectors add up to. Its rounding errors are kept beside it (Knuth's two-sum), so
// that the last column is as exact as the first.
struct Carry {
  float sum = 0.0f, error = 0.0f;

  vec add_to(vec sums) {
    const vec out = sums + (sum + error);
    const float x = sums[LANES - 1], next = sum + x, rounded = next - sum;
    error += (sum - (next - rounded)) + (x - rounded);
    sum = next;
    return out;
  }
};

static void row_scan(const scalar_t* x, scalar_t* y, int64_t cols) {
  Carry carry;
  int64_t i = 0;
  for (; i + LANES <= cols; i += LANES) store(y + i, carry.add_to(scan(load(x + i))));
  if (i < cols) store(y + i, carry.add_to(scan(load(x + i, cols - i))), cols - i);
}

extern "C" int cumsum(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row) row_scan(x + row * cols, y + row * cols, cols);
  return 0;
}
