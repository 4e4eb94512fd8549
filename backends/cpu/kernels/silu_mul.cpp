#define PARALLEL_FROM 32768  // knob: 8192 32768 131072
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

// gate / (1 + e^-gate) is the sigmoid's product with one division. Where the exponential overflows
// the quotient is 0, as it should be.
PORTKERN_INLINE vec gated(vec gate, vec up) { return gate / (1.0f + exp(-gate)) * up; }

extern "C" int silu_mul(const scalar_t* gate, const scalar_t* up, scalar_t* y, int64_t n) {
  const int64_t whole = n / (2 * LANES) * (2 * LANES);
  const bool large = n >= STREAM_FROM;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
  for (int64_t i = 0; i < whole; i += 2 * LANES) {
    // Two at once: the polynomials are chains, each step of which waits for the last.
    const vec y0 = gated(load(gate + i), load(up + i));
    const vec y1 = gated(load(gate + i + LANES), load(up + i + LANES));
    stream(y + i, y0, large);
    stream(y + i + LANES, y1, large);
  }
  for (int64_t i = whole; i < n; i += LANES) {
    const int64_t count = n - i < LANES ? n - i : LANES;
    store(y + i, gated(load(gate + i, count), load(up + i, count)), count);
  }
  return 0;
}
