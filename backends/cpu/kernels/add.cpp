#include <portkern/rows.h>

#define PARALLEL_FROM 65536  // knob: 16384 65536 262144
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216
#define NARROW 64            // knob: 16 32 64 128

static void add_row(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t n, bool large) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) stream(c + i, load(a + i) + load(b + i), large);
  if (i < n) store(c + i, load(a + i, n - i) + load(b + i, n - i), n - i);
}

// Of narrow rows, LANES at a time are one row of whole vectors, to which b is added as often.
static void add_narrow(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                       bool parallel, bool large) {
  scalar_t repeated[NARROW * LANES];
  const int64_t period = n * LANES, all = m * n;
  for (int64_t i = 0; i < n; ++i) repeated[i] = b[i];
  for (int64_t i = n; i < period; ++i) repeated[i] = repeated[i - n];
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t i = 0; i < all; i += period)
    add_row(a + i, repeated, c + i, all - i < period ? all - i : period, large);
}

extern "C" int add(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n) {
  const bool parallel = m * n >= PARALLEL_FROM, large = m * n >= STREAM_FROM;
  if (n == 0) return 0;
  if (n <= NARROW && m >= 2 * LANES) {  // for fewer rows b is not worth repeating
    add_narrow(a, b, c, m, n, parallel, large);
    return 0;
  }
  const Parts parts(m, n);
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t job = 0; job < m * parts.count; ++job)
    add_row(a + parts.start(job), b + parts.first(job), c + parts.start(job), parts.size(job), large);
  return 0;
}
