#define PARALLEL_FROM 16384  // knob: 4096 16384 65536

PORTKERN_INLINE vec gelu(vec x) {
  // Below -15 the product is less than every float, but -infinity * 0 would be NaN.
  return max(splat(-15.0f), x) * (sizeof(scalar_t) == 2 ? rough_normal_cdf(x) : normal_cdf(x));
}

extern "C" int bias_gelu(const scalar_t* x, const scalar_t* bias, scalar_t* y, int64_t rows,
                         int64_t cols) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row) {
    const scalar_t* in = x + row * cols;
    scalar_t* out = y + row * cols;
    int64_t i = 0;
    for (; i + 2 * LANES <= cols; i += 2 * LANES) {
      // Two at once: the polynomials are chains, each step of which waits for the last.
      const vec y0 = gelu(load(in + i) + load(bias + i));
      const vec y1 = gelu(load(in + i + LANES) + load(bias + i + LANES));
      store(out + i, y0, y1);
    }
    for (; i < cols; i += LANES) {
      const int64_t count = cols - i < LANES ? cols - i : LANES;
      store(out + i, gelu(load(in + i, count) + load(bias + i, count)), count);
    }
  }
  return 0;
}
