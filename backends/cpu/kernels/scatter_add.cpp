#include <stdlib.h>

#define PARALLEL_FROM 32768  // knob: 8192 32768 131072
#define TILE 1024            // knob: 256 1024 4096

// The rows of src are listed by the row of y that they go to, so that every element of y has one
// thread, which adds to it in float32 and in order of i.

PORTKERN_INLINE vec up_to(const scalar_t* p, int64_t n) { return n < LANES ? load(p, n) : load(p); }

// A tile of one row; i is the first of its list, -1 ends it.
static void add_tile(const scalar_t* x, const scalar_t* src, scalar_t* y, const int64_t* next,
                     int64_t i, int64_t width, int64_t dim) {
  if (i < 0) {
    memcpy(y, x, size_t(width) * sizeof(scalar_t));
    return;
  }
  float sum[TILE + LANES];
  for (int64_t j = 0; j < width; j += LANES) store(sum + j, up_to(x + j, width - j));
  for (; i >= 0; i = next[i])
    for (int64_t j = 0; j < width; j += LANES)
      store(sum + j, load(sum + j) + up_to(src + i * dim + j, width - j));
  int64_t j = 0;
  for (; j + LANES <= width; j += LANES) store(y + j, load(sum + j));
  if (j < width) store(y + j, load(sum + j), width - j);
}

extern "C" int scatter_add(const scalar_t* x, const int64_t* index, const scalar_t* src,
                           scalar_t* y, int64_t rows, int64_t dim, int64_t n) {
  int64_t* first = static_cast<int64_t*>(malloc(size_t(rows + n + 1) * sizeof(int64_t)));
  if (!first) return 1;
  int64_t* next = first + rows;
  for (int64_t row = 0; row < rows; ++row) first[row] = -1;
  for (int64_t i = n - 1; i >= 0; --i) {
    next[i] = first[index[i]];
    first[index[i]] = i;
  }
  // Tile by tile, not row by row: threads then share a row that many others are added to.
  const int64_t tiles = (dim + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) if ((rows + n) * dim >= PARALLEL_FROM)
  for (int64_t job = 0; job < rows * tiles; ++job) {
    const int64_t row = job % rows, j = job / rows * TILE, at = row * dim + j;
    add_tile(x + at, src + j, y + at, next, first[row], dim - j < TILE ? dim - j : TILE, dim);
  }
  free(first);
  return 0;
}
