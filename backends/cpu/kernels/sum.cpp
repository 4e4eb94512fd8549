#include <portkern/rows.h>

#define PARALLEL_FROM 32768  // knob: 8192 32768 131072
#define TILE 256             // knob: 64 128 256 512
#define BLOCK 128            // knob: 64 128 256 512
#define FEW 16               // knob: 4 8 16 32
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

// ---- Along the last axis

static void narrow_rows(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t left) {
  vec v[LANES], sum = {};
  load_columns(x, cols, left, v);
  for (int64_t j = 0; j < cols; ++j) sum += v[j];
  if (rows == LANES) store(y, sum);
  else store(y, sum, rows);
}

template <int V>
static float short_row(const scalar_t* x, int64_t cols) {
  vec v[V], sum = {};
  load_row<V>(x, cols, 0.0f, v);
  for (int i = 0; i < V; ++i) sum += v[i];
  return reduce_add(sum);
}

static double sum_run(const scalar_t* x, int64_t n) {
  return sum_terms(x, n, 0.0f, [](vec v, int64_t, int64_t) { return v; });
}

static int sum_rows(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, bool parallel) {
  if (are_narrow(cols)) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; row += LANES)
      narrow_rows(x + row * cols, y + row, rows - row < LANES ? rows - row : LANES, cols,
                  (rows - row) * cols);
    return 0;
  }
  const bool few = in_registers<8>(cols, [=](auto vectors) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; ++row) y[row] = short_row<vectors.count>(x + row * cols, cols);
  });
  if (few) return 0;
  const Parts parts(rows, cols);
  Scratch<Total> known(rows * parts.count);
  if (!known.data) return 1;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t job = 0; job < rows * parts.count; ++job)
    known.data[job] = {sum_run(x + parts.start(job), parts.size(job))};
  for (int64_t row = 0; row < rows; ++row)
    y[row] = float(parts.total(known.data, row * parts.count).sum);
  return 0;
}

// ---- Along another axis

enum { WIDE = 8 * LANES };  // columns whose sums fit the registers

// Sums of COLUMNS vectors of columns stay in registers; `rest` <= LANES elements are in the last one.
// A few rows are summed on their own, and so are blocks of these: the error grows with neither number.
template <int COLUMNS>
PORTKERN_INLINE void add_block(const scalar_t* x, double* total, int64_t count, int64_t rest,
                               int64_t stride) {
  for (int64_t start = 0; start < count; start += BLOCK) {
    const int64_t end = start + BLOCK < count ? start + BLOCK : count;
    float sums[COLUMNS * LANES] = {};
    for (int64_t r = start; r < end;) {
      const int64_t stop = r + FEW < end ? r + FEW : end;
      vec part[COLUMNS] = {};
      for (; r < stop; ++r) {
        const scalar_t* row = x + r * stride;
#pragma GCC unroll 8
        for (int i = 0; i + 1 < COLUMNS; ++i) part[i] += load(row + i * LANES);
        row += (COLUMNS - 1) * LANES;
        part[COLUMNS - 1] += rest == LANES ? load(row) : load(row, rest);
      }
      for (int i = 0; i < COLUMNS; ++i) store(sums + i * LANES, load(sums + i * LANES) + part[i]);
    }
    for (int64_t j = 0; j < (COLUMNS - 1) * LANES + rest; ++j) total[j] += sums[j];
  }
}

// Adds `count` rows of `width` columns to `total`; `stride` elements lie between rows.
static void add_rows(const scalar_t* x, double* total, int64_t count, int64_t width, int64_t stride) {
  for (; width > 8 * LANES; width -= 8 * LANES, x += 8 * LANES, total += 8 * LANES)
    add_block<8>(x, total, count, LANES, stride);
  const int64_t vectors = (width + LANES - 1) / LANES, rest = width - (vectors - 1) * LANES;
  if (vectors == 1) add_block<1>(x, total, count, rest, stride);
  if (vectors == 2) add_block<2>(x, total, count, rest, stride);
  if (vectors == 3) add_block<3>(x, total, count, rest, stride);
  if (vectors == 4) add_block<4>(x, total, count, rest, stride);
  if (vectors == 5) add_block<5>(x, total, count, rest, stride);
  if (vectors == 6) add_block<6>(x, total, count, rest, stride);
  if (vectors == 7) add_block<7>(x, total, count, rest, stride);
  if (vectors == 8) add_block<8>(x, total, count, rest, stride);
}

// A few rows: nothing is kept but what is stored.
static void add_few(const scalar_t* x, scalar_t* y, int64_t count, int64_t width, int64_t stride,
                    bool large) {
  int64_t j = 0;
  for (; j + 4 * LANES <= width; j += 4 * LANES) {
    vec sum[4] = {};
    for (int64_t r = 0; r < count; ++r)
      for (int i = 0; i < 4; ++i) sum[i] += load(x + r * stride + j + i * LANES);
    for (int i = 0; i < 4; ++i) stream(y + j + i * LANES, sum[i], large);
  }
  for (; j < width; j += LANES) {
    const int64_t n = width - j < LANES ? width - j : LANES;
    vec sum = {};
    for (int64_t r = 0; r < count; ++r) sum += load(x + r * stride + j, n);
    store(y + j, sum, n);
  }
}

// The same of rows that follow each other. Narrow ones are taken several at a time, as one wide row,
// whose vectors are whole.
static void add_columns(const scalar_t* x, double* total, int64_t count, int64_t width) {
  const int64_t merged = width * LANES <= WIDE ? LANES : WIDE / width, wide = merged * width;
  const int64_t times = count >= 2 * merged && merged > 1 ? count / merged : 0;
  if (times) {
    double sums[WIDE] = {};
    add_rows(x, sums, times, wide, wide);
    for (int64_t i = 0; i < merged; ++i)
      for (int64_t j = 0; j < width; ++j) total[j] += sums[i * width + j];
  }
  const int64_t done = times * merged;
  add_rows(x + done * width, total, count - done, width, width);
}

// So little for each output that no vector is worth it.
static void add_little(const scalar_t* x, scalar_t* y, int64_t reduce, int64_t inner) {
  for (int64_t j = 0; j < inner; ++j) {
    float sum = 0.0f;
    for (int64_t r = 0; r < reduce; ++r) sum += float(x[r * inner + j]);
    y[j] = sum;
  }
}

static void sum_tile(const scalar_t* x, double* total, int64_t count, int64_t width, int64_t inner) {
  for (int64_t j = 0; j < width; ++j) total[j] = 0.0;
  if (width == inner) add_columns(x, total, count, width);
  else add_rows(x, total, count, width, inner);
}

// Tiles of columns, and where these are few, parts of their rows.
static int sum_tiles(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner,
                     bool parallel) {
  const int64_t tiles = (inner + TILE - 1) / TILE, least = (1 << 14) / (inner < TILE ? inner : TILE);
  const Parts parts(outer * tiles, reduce, least, 1);
  Scratch<double> known(parts.count > 1 ? outer * tiles * parts.count * TILE : 0);
  if (!known.data) return 1;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t job = 0; job < outer * tiles * parts.count; ++job) {
    const int64_t o = job / parts.count / tiles, first = job / parts.count % tiles * TILE;
    const int64_t width = inner - first < TILE ? inner - first : TILE;
    const scalar_t* from = x + (o * reduce + parts.first(job)) * inner + first;
    if (parts.count > 1) {
      sum_tile(from, known.data + job * TILE, parts.size(job), width, inner);
      continue;
    }
    double total[TILE];
    sum_tile(from, total, reduce, width, inner);
    for (int64_t j = 0; j < width; ++j) y[o * inner + first + j] = float(total[j]);
  }
  if (parts.count == 1) return 0;
  for (int64_t i = 0; i < outer * inner; ++i) {
    const int64_t tile = i / inner * tiles + i % inner / TILE, j = i % inner % TILE;
    double total = 0.0;
    for (int64_t p = 0; p < parts.count; ++p)
      total += known.data[(tile * parts.count + p) * TILE + j];
    y[i] = float(total);
  }
  return 0;
}

extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner) {
  const bool parallel = outer * reduce * inner >= PARALLEL_FROM;
  if (reduce == 1) {
    copy(x, y, outer * inner, parallel);
    return 0;
  }
  if (inner == 1) return sum_rows(x, y, outer, reduce, parallel);
  if (reduce > 0 && reduce <= FEW && inner >= 2 * LANES) {
    const Parts parts(outer, inner);
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t job = 0; job < outer * parts.count; ++job)
      add_few(x + job / parts.count * reduce * inner + parts.first(job), y + parts.start(job), reduce,
              parts.size(job), inner, outer * inner >= STREAM_FROM);
    return 0;
  }
  if (reduce * inner <= 4 * LANES) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t o = 0; o < outer; ++o)
      add_little(x + o * reduce * inner, y + o * inner, reduce, inner);
    return 0;
  }
  return sum_tiles(x, y, outer, reduce, inner, parallel);
}
