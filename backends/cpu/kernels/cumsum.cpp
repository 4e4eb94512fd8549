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
// the last column is as exact as the first.
struct Carry {
  float sum, error;

  void add(float x) {
    const float next = sum + x, rounded = next - sum;
    error += (sum - (next - rounded)) + (x - rounded);
    sum = next;
  }
};

static void row_scan(const scalar_t* x, scalar_t* y, int64_t n, double before) {
  Carry carry = {float(before), float(before - float(before))};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    const vec sums = scan(load(x + i));
    store(y + i, sums + (carry.sum + carry.error));
    carry.add(sums[LANES - 1]);
  }
  if (i < n) store(y + i, scan(load(x + i, n - i)) + (carry.sum + carry.error), n - i);
}

// Nothing is carried, and neighbours do not wait for each other.
static void narrow_row(const scalar_t* x, scalar_t* y, int64_t cols) {
  store(y, scan(load(x, cols)), cols);
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
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; ++row) narrow_row(x + row * cols, y + row * cols, cols);
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
