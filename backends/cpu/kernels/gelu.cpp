#define PARALLEL_FROM 16384  // knob: 4096 16384 65536

PORTKERN_INLINE vec gelu(vec x) {
  const vec y = x * normal_cdf(x), bound = splat(-15.0f), zero = {};
  return x < bound ? zero : y;  // there the product is below every float, but -infinity * 0 is NaN
}

extern "C" int gelu(const scalar_t* x, scalar_t* y, int64_t n) {
  const int64_t whole = n / LANES * LANES;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
  for (int64_t i = 0; i < whole; i += LANES) store(y + i, gelu(load(x + i)));
  if (whole < n) store(y + whole, gelu(load(x + whole, n - whole)), n - whole);
  return 0;
}
