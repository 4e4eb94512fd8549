#define PARALLEL_FROM 65536  // knob: 16384 65536 262144
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

extern "C" int add(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n) {
  const bool large = m * n >= STREAM_FROM;
#pragma omp parallel for schedule(static) if (m * n >= PARALLEL_FROM)
  for (int64_t row = 0; row < m; ++row) {
    const scalar_t* in = a + row * n;
    scalar_t* out = c + row * n;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) stream(out + i, load(in + i) + load(b + i), large);
    if (i < n) store(out + i, load(in + i, n - i) + load(b + i, n - i), n - i);
  }
  return 0;
}
