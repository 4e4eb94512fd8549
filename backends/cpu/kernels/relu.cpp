#define PARALLEL_FROM 65536  // knob: 16384 65536 262144
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

PORTKERN_INLINE vec relu(vec x) {
  const vec zero = {};
  return x < zero ? zero : x;  // a NaN compares false and stays
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  const int64_t whole = n / LANES * LANES;
  const bool large = n >= STREAM_FROM;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
  for (int64_t i = 0; i < whole; i += LANES) stream(y + i, relu(load(x + i)), large);
  if (whole < n) store(y + whole, relu(load(x + whole, n - whole)), n - whole);
  return 0;
}
