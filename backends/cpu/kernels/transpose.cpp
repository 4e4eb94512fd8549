#include <portkern/rows.h>

#define PARALLEL_FROM 65536  // knob: 16384 65536 262144
#define TILE 64              // knob: 16 32 64 128

// Elements are moved, never converted: vectors of LANES integers of their size.
template <int BYTES> struct Storage { using type = uvec; };
template <> struct Storage<2> { using type = hvec; };
using bits = Storage<sizeof(scalar_t)>::type;

static inline void block(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  bits now[LANES];
  for (int i = 0; i < LANES; ++i) memcpy(&now[i], x + i * cols, sizeof(bits));
  turn(now);
  for (int i = 0; i < LANES; ++i) memcpy(y + i * rows, &now[i], sizeof(bits));
}

// The same of `width` columns: what is read beyond them are the next row's elements, which are left.
static inline void last_columns(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                                int64_t width) {
  bits now[LANES];
  for (int i = 0; i < LANES; ++i) memcpy(&now[i], x + i * cols, sizeof(bits));
  turn(now);
  for (int64_t i = 0; i < width; ++i) memcpy(y + i * rows, &now[i], sizeof(bits));
}

// Of a tile `left` elements are left to read, the tile's own first.
static void tile(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t height,
                 int64_t width, int64_t left) {
  const int64_t whole_i = height / LANES * LANES, whole_j = width / LANES * LANES, rest = width - whole_j;
  for (int64_t j = 0; j < whole_j; j += LANES)
    for (int64_t i = 0; i < whole_i; i += LANES)
      block(x + i * cols + j, y + j * rows + i, rows, cols);
  int64_t done = 0;  // rows of the last columns
  for (; rest > 1 && done < whole_i && (done + LANES - 1) * cols + whole_j + LANES <= left; done += LANES)
    last_columns(x + done * cols + whole_j, y + whole_j * rows + done, rows, cols, rest);
  for (int64_t j = 0; j < width; ++j)
    for (int64_t i = j < whole_j ? whole_i : done; i < height; ++i) y[j * rows + i] = x[i * cols + j];
}

extern "C" int transpose(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  if (rows == 1 || cols == 1) {
    copy(x, y, rows * cols, rows * cols >= PARALLEL_FROM);
    return 0;
  }
  const int64_t down = (rows + TILE - 1) / TILE, across = (cols + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t job = 0; job < down * across; ++job) {
    // Down first: a thread writes along the rows of y, which come back to the same pages.
    const int64_t i = job % down * TILE, j = job / down * TILE;
    tile(x + i * cols + j, y + j * rows + i, rows, cols, rows - i < TILE ? rows - i : TILE,
         cols - j < TILE ? cols - j : TILE, (rows - i) * cols - j);
  }
  return 0;
}
