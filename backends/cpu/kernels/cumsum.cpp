#include <portkern/rows.h>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define PART 262144          // knob: 65536 262144 1048576

// The running sum of a vector's lanes, in log2(LANES) steps.
PORTKERN_INLINE vec scan(vec v) {
  v += shift_lanes<1>(v);
  v += shift_lanes<2>(v);
  if (LANES > 4) v += shift_lanes<4>(v);
  if (LANES > 8) v += shift_lanes<8>(v);
  return v;
}

// What earlier elements add up to. Its rounding errors are kept beside it (Knuth's two-sum), so that
// the last column is as exact as the first; an infinite sum has none, and stays infinite.
struct Carry {
  float sum, error = 0.0f;

  explicit Carry(double before) : sum(float(before)) { missed(float(before - double(sum))); }

  void missed(float more) {
    if (more - more == 0.0f) error += more;
  }

  void add(float x) {
    const float next = sum + x, rounded = next - sum;
    missed((sum - (next - rounded)) + (x - rounded));
    sum = next;
  }
};

static void row_scan(const scalar_t* x, scalar_t* y, int64_t n, double before) {
  Carry carry(before);
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    const vec sums = scan(load(x + i));
    store(y + i, sums + (carry.sum + carry.error));
    carry.add(sums[LANES - 1]);
  }
  if (i < n) store(y + i, scan(load(x + i, n - i)) + (carry.sum + carry.error), n - i);
}

// As many narrow rows as a vector holds: an element takes nothing from before its row.
struct Narrow {
  int64_t cols, count;  // of a row, and of all
  uvec reached[4];      // by 1, 2, 4 and 8 lanes

  explicit Narrow(int64_t cols) : cols(cols), count(LANES / cols * cols) {
    for (int step = 0; step < 4; ++step)
      for (int lane = 0; lane < LANES; ++lane)
        reached[step][lane] = lane % cols >= 1 << step ? ~0u : 0u;
  }

  template <int STEP>
  vec from_before(vec v) const {
    return as<vec>(as<uvec>(shift_lanes<1 << STEP>(v)) & reached[STEP]);
  }

  vec scan(vec v) const {
    v += from_before<0>(v);
    if (cols > 2) v += from_before<1>(v);
    if constexpr (LANES > 4)
      if (cols > 4) v += from_before<2>(v);
    if constexpr (LANES > 8)
      if (cols > 8) v += from_before<3>(v);
    return v;
  }
};

// What a vector has behind its last whole row is written again by the next one: a store of some lanes
// takes several times as long.
static void narrow_rows(const scalar_t* x, scalar_t* y, int64_t count, int64_t cols, bool parallel) {
  constexpr int64_t VECTORS = 256;  // of a job
  const Narrow rows(cols);
  const int64_t share = VECTORS * rows.count;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t start = 0; start < count; start += share) {
    const int64_t end = count - start < share ? count : start + share;
    int64_t i = start;
    for (; i + LANES <= end; i += rows.count) store(y + i, rows.scan(load(x + i)));
    if (i < end) store(y + i, rows.scan(load(x + i, end - i)), end - i);
  }
}

// In double, as the carries that it stands for are kept with their errors.
static double sum_of(const scalar_t* x, int64_t n) {
  typedef double dvec __attribute__((vector_size(8 * LANES)));
  dvec lanes = {};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) lanes += __builtin_convertvector(load(x + i), dvec);
  if (i < n) lanes += __builtin_convertvector(load(x + i, n - i), dvec);
  double total = 0.0;
  for (int lane = 0; lane < LANES; ++lane) total += lanes[lane];
  return total;
}

// Threads have neighbouring parts, each of which is read a second time while it is in a cache: as soon
// as it is known what the parts before it add up to.
static int shared_row(const scalar_t* x, scalar_t* y, int64_t cols) {
  const int64_t threads = thread_count(), each = (cols + threads - 1) / threads;
  const int64_t part = each < PART ? each : PART;
  Scratch<double> sums(threads);
  if (!sums.data) return 1;
  double before = 0.0;
  for (int64_t start = 0; start < cols; start += threads * part) {
#pragma omp parallel
    {
#pragma omp for schedule(static)
      for (int64_t t = 0; t < threads; ++t) {
        const int64_t at = start + t * part, left = cols - at < part ? cols - at : part;
        sums.data[t] = sum_of(x + at, left < 0 ? 0 : left);
      }
#pragma omp for schedule(static)
      for (int64_t t = 0; t < threads; ++t) {
        const int64_t at = start + t * part, left = cols - at < part ? cols - at : part;
        double all = before;
        for (int64_t earlier = 0; earlier < t; ++earlier) all += sums.data[earlier];
        row_scan(x + at, y + at, left < 0 ? 0 : left, all);
      }
    }
    for (int64_t t = 0; t < threads; ++t) before += sums.data[t];
  }
  return 0;
}

extern "C" int cumsum(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  const bool parallel = rows * cols >= PARALLEL_FROM;
  if (cols == 0) return 0;
  if (cols == 1) {
    copy(x, y, rows, parallel);
    return 0;
  }
  if (are_narrow(cols)) {
    narrow_rows(x, y, rows * cols, cols, parallel);
    return 0;
  }
  // Two readings pay where there are not even as many rows as threads.
  if (rows < thread_count() && cols >= 4 * PARALLEL_FROM) {
    int failed = 0;
    for (int64_t row = 0; row < rows; ++row) failed |= shared_row(x + row * cols, y + row * cols, cols);
    return failed;
  }
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t row = 0; row < rows; ++row) row_scan(x + row * cols, y + row * cols, cols, 0.0);
  return 0;
}
