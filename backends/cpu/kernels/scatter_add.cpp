#include <portkern/copy.h>
#include <portkern/rows.h>

#define PARALLEL_FROM 32768  // knob: 8192 32768 131072
#define TILE 4096            // knob: 1024 4096 16384
#define NARROW 16            // knob: 4 8 16 32
#define FEW 4096             // knob: 1024 4096 16384
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

// All sums are of float32, whatever the elements are.

// ---- Wide rows: those of src are listed by the row of y that they go to, so that every element of y
// has one thread, which adds to it in a register's reach and in order of i.

PORTKERN_INLINE vec up_to(const scalar_t* p, int64_t n) { return n < LANES ? load(p, n) : load(p); }

// A tile of one row; i is the first of its list, -1 ends it.
static void add_tile(const scalar_t* x, const scalar_t* src, scalar_t* y, const int64_t* next,
                     int64_t i, int64_t width, int64_t dim, bool large) {
  if (i < 0) return copy(x, y, width, large);
  float sum[TILE + LANES];
  for (int64_t j = 0; j < width; j += LANES) store(sum + j, up_to(x + j, width - j));
  for (; i >= 0; i = next[i])
    for (int64_t j = 0; j < width; j += LANES)
      store(sum + j, load(sum + j) + up_to(src + i * dim + j, width - j));
  int64_t j = 0;
  for (; j + LANES <= width; j += LANES) store(y + j, load(sum + j));
  if (j < width) store(y + j, load(sum + j), width - j);
}

static int by_lists(const scalar_t* x, const int64_t* index, const scalar_t* src, scalar_t* y,
                    int64_t rows, int64_t dim, int64_t n) {
  Scratch<int64_t> lists(rows + n);
  if (!lists.data) return 1;
  int64_t *first = lists.data, *next = first + rows;
  for (int64_t row = 0; row < rows; ++row) first[row] = -1;
  for (int64_t i = n - 1; i >= 0; --i) {
    next[i] = first[index[i]];
    first[index[i]] = i;
  }
  // Tiles of equal width, one for each thread at least, in the order of memory and several at a time:
  // threads then share a row that many others are added to.
  const int64_t threads = thread_count(), room = (dim + TILE - 1) / TILE;
  const int64_t tiles = rows * room < threads && dim > threads * LANES ? threads : room;
  const int64_t wide = (dim + tiles - 1) / tiles, jobs = rows * tiles;
  const bool large = rows * dim >= STREAM_FROM;
  const int64_t some = jobs < 16 * threads ? 1 : jobs < 1024 * threads ? jobs / (16 * threads) : 64;
#pragma omp parallel for schedule(dynamic, some) if ((rows + n) * dim >= PARALLEL_FROM)
  for (int64_t job = 0; job < jobs; ++job) {
    const int64_t row = job / tiles, j = job % tiles * wide, at = row * dim + j;
    const int64_t width = dim - j < wide ? dim - j : wide;
    if (width > 0) add_tile(x + at, src + j, y + at, next, first[row], width, dim, large);
  }
  return 0;
}

// ---- Few targets: threads add to sums of their own, and to several in turn, since an addition to what
// was just stored waits for it.

enum { SETS = 4 };

static int few_targets(const scalar_t* x, const int64_t* index, const scalar_t* src, scalar_t* y,
                       int64_t rows, int64_t dim, int64_t n, bool parallel) {
  const int64_t size = rows * dim, threads = parallel ? thread_count() : 1;
  Scratch<float> sums(threads * SETS * size);
  if (!sums.data) return 1;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t t = 0; t < threads; ++t) {
    float* own = sums.data + t * SETS * size;
    memset(own, 0, size_t(SETS * size) * sizeof(float));
    for (int64_t i = n * t / threads; i < n * (t + 1) / threads; ++i) {
      float* to = own + i % SETS * size + index[i] * dim;
      for (int64_t j = 0; j < dim; ++j) to[j] += float(src[i * dim + j]);
    }
  }
  for (int64_t e = 0; e < size; ++e) {
    double all = float(x[e]);
    for (int64_t set = 0; set < threads * SETS; ++set) all += sums.data[set * size + e];
    y[e] = float(all);
  }
  return 0;
}

// ---- Narrow rows: a thread owns neighbouring ones, reads all indices and adds what goes to its own, in
// order of i. Lists would take longer than the additions.

// A float32 output is where its sums are.
PORTKERN_INLINE float* sums_of(float* y, float*) { return y; }
PORTKERN_INLINE float* sums_of(void*, float* room) { return room; }

static void add_own(const scalar_t* x, const int64_t* index, const scalar_t* src, scalar_t* y,
                    float* sums, int64_t first, int64_t last, int64_t dim, int64_t n) {
  for (int64_t e = first * dim; e < last * dim; ++e) sums[e] = x[e];
  enum { AT_ONCE = 256 };
  int32_t own[AT_ONCE];
  for (int64_t start = 0; start < n; start += AT_ONCE) {
    const int64_t count = n - start < AT_ONCE ? n - start : AT_ONCE;
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) {  // no branch, which would often be guessed wrong
      own[found] = int32_t(i);
      found += index[start + i] >= first && index[start + i] < last;
    }
    for (int64_t e = 0; e < found; ++e) {
      const int64_t i = start + own[e];
      for (int64_t j = 0; j < dim; ++j) sums[index[i] * dim + j] += float(src[i * dim + j]);
    }
  }
  if (sums == static_cast<void*>(y)) return;
  for (int64_t e = first * dim; e < last * dim; ++e) y[e] = sums[e];
}

static int narrow_rows(const scalar_t* x, const int64_t* index, const scalar_t* src, scalar_t* y,
                       int64_t rows, int64_t dim, int64_t n, bool parallel) {
  const bool in_place = sizeof(scalar_t) == sizeof(float);
  Scratch<float> room(in_place ? 0 : rows * dim);
  if (!room.data) return 1;
  const int64_t owners = parallel ? thread_count() : 1;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t owner = 0; owner < owners; ++owner)
    add_own(x, index, src, y, sums_of(y, room.data), rows * owner / owners,
            rows * (owner + 1) / owners, dim, n);
  return 0;
}

extern "C" int scatter_add(const scalar_t* x, const int64_t* index, const scalar_t* src,
                           scalar_t* y, int64_t rows, int64_t dim, int64_t n) {
  const bool parallel = (rows + n) * dim >= PARALLEL_FROM;
  if (rows * dim <= FEW && n >= 16 * rows)
    return few_targets(x, index, src, y, rows, dim, n, parallel);
  if (dim <= NARROW) return narrow_rows(x, index, src, y, rows, dim, n, parallel);
  return by_lists(x, index, src, y, rows, dim, n);
}
