#define PARALLEL_FROM 65536  // knob: 16384 65536 262144
#define TILE 64              // knob: 16 32 64 128

// Elements are moved, never converted: vectors of LANES integers of their size.
template <int BYTES> struct Storage { using type = uvec; };
template <> struct Storage<2> { using type = hvec; };
using bits = Storage<sizeof(scalar_t)>::type;

// A block of LANES x LANES in registers: interleaving row i with row i + LANES / 2 moves each
// element one bit of its index towards its place; log2(LANES) rounds transpose.
static inline void block(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  bits now[LANES], next[LANES];
  for (int i = 0; i < LANES; ++i) memcpy(&now[i], x + i * cols, sizeof(bits));
#pragma GCC unroll 4
  for (int round = 1; round < LANES; round *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES / 2; ++i) {
      next[2 * i] = interleave_low(now[i], now[i + LANES / 2]);
      next[2 * i + 1] = interleave_high(now[i], now[i + LANES / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) now[i] = next[i];
  }
  for (int i = 0; i < LANES; ++i) memcpy(y + i * rows, &now[i], sizeof(bits));
}

static void tile(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t height,
                 int64_t width) {
  const int64_t whole_i = height / LANES * LANES, whole_j = width / LANES * LANES;
  for (int64_t j = 0; j < whole_j; j += LANES)
    for (int64_t i = 0; i < whole_i; i += LANES)
      block(x + i * cols + j, y + j * rows + i, rows, cols);
  for (int64_t j = 0; j < width; ++j)
    for (int64_t i = j < whole_j ? whole_i : 0; i < height; ++i) y[j * rows + i] = x[i * cols + j];
}

extern "C" int transpose(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
  const int64_t down = (rows + TILE - 1) / TILE, across = (cols + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t job = 0; job < down * across; ++job) {
    // Down first: a thread writes along the rows of y, which come back to the same pages.
    const int64_t i = job % down * TILE, j = job / down * TILE;
    tile(x + i * cols + j, y + j * rows + i, rows, cols, rows - i < TILE ? rows - i : TILE,
         cols - j < TILE ? cols - j : TILE);
  }
  return 0;
}
