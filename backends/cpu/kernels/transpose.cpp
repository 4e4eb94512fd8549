#define PARALLEL_FROM 65536  // knob: 16384 65536 262144
#define TILE 32              // knob: 16 32 64 128

// One tile of each matrix fits the first-level cache, and a tile's rows are whole cache lines.
static void tile(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t height,
                 int64_t width) {
  if (height == TILE && width == TILE) {
    for (int j = 0; j < TILE; ++j)
      for (int i = 0; i < TILE; ++i) y[j * rows + i] = x[i * cols + j];
    return;
  }
  for (int64_t j = 0; j < width; ++j)
    for (int64_t i = 0; i < height; ++i) y[j * rows + i] = x[i * cols + j];
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
