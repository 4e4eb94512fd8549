// Rows by their shape: narrow ones LANES side by side, others one after another, and where there are
// fewer rows than threads need, in parts that threads share.
#pragma once

#include <stdlib.h>

#if defined(_OPENMP)
#if __has_include(<omp.h>)
#include <omp.h>
#else  // clang for another machine has the pragmas alone
extern "C" int omp_get_max_threads(void);
#endif
static inline int64_t thread_count() { return omp_get_max_threads(); }
#else
static inline int64_t thread_count() { return 1; }
#endif

// ---- Few long rows -------------------------------------------------------------------------------

enum { JOBS_PER_THREAD = 4, ROW_BLOCK = 4096 };  // a block of floats is half of the nearest cache

// The parts of each row, all but the last equally long: one where the rows alone keep all threads
// busy, and never parts so short that waking a thread takes longer.
struct Parts {
  int64_t count = 1, length, cols;

  // Lengths are multiples of `whole`, so that blocks are.
  Parts(int64_t rows, int64_t cols, int64_t least = 1 << 14, int64_t whole = ROW_BLOCK)
      : length(cols), cols(cols) {
    const int64_t wanted = JOBS_PER_THREAD * thread_count();
    if (rows == 0 || rows >= wanted || cols < 2 * least) return;
    const int64_t by_jobs = (wanted + rows - 1) / rows, by_length = cols / least;
    count = by_jobs < by_length ? by_jobs : by_length;
    length = (cols / count + whole) / whole * whole;
    count = (cols + length - 1) / length;
  }
  // Of a job, which is a part of a row: where in the row it begins, where in the tensor, how long it is.
  int64_t first(int64_t job) const { return job % count * length; }
  int64_t start(int64_t job) const { return job / count * cols + first(job); }
  int64_t size(int64_t job) const {
    const int64_t left = cols - first(job);
    return left < length ? left : length;
  }
  // What is known of all parts of the job's row, in order.
  template <typename Known>
  Known total(const Known* jobs, int64_t job) const {
    Known all = jobs[job / count * count];
    for (int64_t part = 1; part < count; ++part) all.take(jobs[job / count * count + part]);
    return all;
  }
};

// Room for what threads tell each other.
template <typename T>
struct Scratch {
  T* const data;

  explicit Scratch(int64_t count) : data(static_cast<T*>(malloc(size_t(count + 1) * sizeof(T)))) {}
  ~Scratch() { free(data); }
  Scratch(const Scratch&) = delete;
};

template <typename T>
static void copy(const T* x, T* y, int64_t n, bool parallel) {
  const Parts parts(1, n);
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t job = 0; job < parts.count; ++job)
    memcpy(y + parts.first(job), x + parts.first(job), size_t(parts.size(job)) * sizeof(T));
}

// ---- What is known of a part, and how two of them become one ---------------------------------------

struct Total {
  double sum = 0.0;

  void take(const Total& other) { sum += other.sum; }
};

template <typename T>
static float block_max(const T* x, int64_t n) {
  vec m0 = splat(-INFINITY), m1 = m0, m2 = m0, m3 = m0;
  int64_t i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES) {
    m0 = max(load(x + i), m0);
    m1 = max(load(x + i + LANES), m1);
    m2 = max(load(x + i + 2 * LANES), m2);
    m3 = max(load(x + i + 3 * LANES), m3);
  }
  for (; i + LANES <= n; i += LANES) m0 = max(load(x + i), m0);
  if (i < n) m1 = max(load(x + i, n - i, -INFINITY), m1);
  return reduce_max(max(max(m0, m1), max(m2, m3)));
}

// As long as all elements are -infinity, 0 is taken out: -infinity - -infinity would be a NaN.
PORTKERN_INLINE float finite_or_zero(float top) { return top == -INFINITY ? 0.0f : top; }

// The sum of e^(x - top), where top is the largest element. One pass over memory: a block's largest
// is found first, then its powers are added while it is in the nearest cache.
struct Powers {
  float top = -INFINITY;
  double sum = 0.0;

  void take(const Powers& other) {
    const float higher = fmaxf(top, other.top), shift = finite_or_zero(higher);
    sum = sum * expf(top - shift) + other.sum * expf(other.top - shift);
    top = higher;
  }
  template <typename T>
  void take(const T* x, int64_t n) {
    for (int64_t start = 0; start < n; start += ROW_BLOCK) {
      const int64_t count = n - start < ROW_BLOCK ? n - start : ROW_BLOCK;
      const float higher = fmaxf(top, block_max(x + start, count)), shift = finite_or_zero(higher);
      const double more = sum_terms(x + start, count, -INFINITY,
                                    [=](vec v, int64_t, int64_t) { return exp(v - shift); });
      sum = (top == higher ? sum : sum * expf(top - shift)) + more;
      top = higher;
    }
  }
};

// Mean and sum of squared distances from it, a block's by two passes: the difference of E[x^2] and
// E[x]^2 would lose every digit where the mean is large.
struct Moments {
  double count, mean, squares;

  Moments(double count = 0.0, double mean = 0.0, double squares = 0.0)
      : count(count), mean(mean), squares(squares) {}

  void take(const Moments& other) {
    const double all = count + other.count, apart = other.mean - mean;
    squares += other.squares + apart * apart * (count * other.count / all);
    mean += apart * (other.count / all);
    count = all;
  }
  template <typename T>
  void take(const T* x, int64_t n) {
    for (int64_t start = 0; start < n; start += ROW_BLOCK) {
      const T* block = x + start;
      const int64_t size = n - start < ROW_BLOCK ? n - start : ROW_BLOCK;
      // Shifted by an element, the sum keeps the digits in which the elements differ.
      const float first = block[0];
      const double sum = sum_terms(block, size, first,
                                   [=](vec v, int64_t, int64_t) { return v - first; });
      const double middle = first + sum / double(size);
      const float shift = float(middle);
      const double around = sum_terms(block, size, shift, [=](vec v, int64_t, int64_t) {
        v -= shift;
        return v * v;
      });
      take({double(size), middle, around});
    }
  }
};

// ---- Narrow rows ---------------------------------------------------------------------------------

// Transposes LANES vectors in registers: interleaving row i with row i + LANES / 2 moves each
// element one bit of its index towards its place; log2(LANES) rounds transpose.
template <typename V>
PORTKERN_INLINE void turn(V* rows) {
  V next[LANES];
#pragma GCC unroll 4
  for (int round = 1; round < LANES; round *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES / 2; ++i) {
      next[2 * i] = interleave_low(rows[i], rows[i + LANES / 2]);
      next[2 * i + 1] = interleave_high(rows[i], rows[i + LANES / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) rows[i] = next[i];
  }
}

// A row of at most LANES columns would leave most of a vector idle and cost a reduction within it.
PORTKERN_INLINE bool are_narrow(int64_t cols) { return cols <= LANES; }

// LANES rows of narrow ones, as vectors of columns: lane r is row r's. `left` elements
// are there from x on; rows beyond them are zeros.
template <typename T>
PORTKERN_INLINE void load_columns(const T* x, int64_t cols, int64_t left, vec* columns) {
  if (cols == 1) {
    columns[0] = left < LANES ? load(x, left) : load(x);
    return;
  }
  if (left >= LANES * cols + LANES) {
#pragma GCC unroll 16
    for (int r = 0; r < LANES; ++r) columns[r] = load(x + r * cols);
  } else {
    for (int r = 0; r < LANES; ++r) {
      const int64_t rest = left - r * cols;
      columns[r] = rest >= LANES ? load(x + r * cols) : rest > 0 ? load(x + r * cols, rest) : vec{};
    }
  }
  turn(columns);
}

// A row's vector ends in the next row, which is stored later; those at the group's end stop there.
template <typename T>
PORTKERN_INLINE void store_columns(T* y, int64_t rows, int64_t cols, vec* columns) {
  if (cols == 1) {
    if (rows < LANES) store(y, columns[0], rows);
    else store(y, columns[0]);
    return;
  }
  turn(columns);
  const int64_t end = rows * cols;
  for (int64_t at = 0, r = 0; r < rows; at += cols, ++r) {
    if (at + LANES <= end) store(y + at, columns[r]);
    else store(y + at, columns[r], cols);
  }
}

// ---- Rows of a few vectors -----------------------------------------------------------------------

// A row of V vectors stays in registers; the last may end before its lanes do.
template <int V, typename T>
PORTKERN_INLINE void load_row(const T* x, int64_t cols, float fill, vec* row) {
#pragma GCC unroll 8
  for (int i = 0; i + 1 < V; ++i) row[i] = load(x + i * LANES);
  row[V - 1] = load(x + (V - 1) * LANES, cols - (V - 1) * LANES, fill);
}

template <int V, typename T>
PORTKERN_INLINE void store_row(T* y, int64_t cols, const vec* row) {
#pragma GCC unroll 4
  for (int i = 0; i + 1 < V; ++i) store(y + i * LANES, row[i]);
  store(y + (V - 1) * LANES, row[V - 1], cols - (V - 1) * LANES);
}

// The first n lanes of v, zeros beyond.
PORTKERN_INLINE vec first_of(vec v, int64_t n) {
  float lanes[LANES];
  store(lanes, v);
  return n < LANES ? load(lanes, n) : v;
}

// Calls `run` with the vectors of a row as a constant, if they are few.
template <int V>
struct Vectors {
  static constexpr int count = V;
};
template <int MOST = 4, class Run>
PORTKERN_INLINE bool in_registers(int64_t cols, Run run) {
  const int64_t vectors = (cols + LANES - 1) / LANES;
  if (vectors == 2) run(Vectors<2>());
  if (vectors == 3) run(Vectors<3>());
  if (vectors == 4) run(Vectors<4>());
  if constexpr (MOST == 8) {
    if (vectors == 5) run(Vectors<5>());
    if (vectors == 6) run(Vectors<6>());
    if (vectors == 7) run(Vectors<7>());
    if (vectors == 8) run(Vectors<8>());
  }
  return vectors >= 2 && vectors <= MOST;
}
