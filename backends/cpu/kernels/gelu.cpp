#define PARALLEL_FROM 16384  // knob: 4096 16384 65536

PORTKERN_INLINE vec gelu(vec x) {
  const vec y = x * normal_cdf(x), bound = splat(-15.0f), zero = {};
  return x < bound ? zero : y;  // there the product is below every float, but -infinity * 0 is NaN
}

extern "C" int gelu(const scalar_t* x, scalar_t* y, int64_t n) {
  const int64_t whole = n / (2 * LANES) * (2 * LANES);
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
  for (int64_t i = 0; i < whole; i += 2 * LANES) {
    // Two at once: the polynomials are chains, each step of which waits for the last.
    const vec y0 = gelu(load(x + i)), y1 = gelu(load(x + i + LANES));
    store(y + i, y0);
    store(y + i + LANES, y1);
  }
  for (int64_t i = whole; i < n; ++i) {
    const vec one = gelu(splat(x[i]));
    y[i] = one[0];
  }
  return 0;
}
