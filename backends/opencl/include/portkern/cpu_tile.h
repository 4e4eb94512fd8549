// On a CPU: a block of a product of matrices by one work-item. It takes DEPTH terms of each sum at a
// time: brings those of both operands into local memory, which is memory, as floats and in the order
// in which they are read again, then multiplies them tile by tile, whose sums stay in registers.
#ifdef __AVX512F__
#define WIDE 16
#define TILE_ROWS 12  // with two vectors to a row, 24 of 32 registers are sums
#else
#define WIDE 8
#define TILE_ROWS 6  // 12 of 16
#endif
#define TILE (2 * WIDE)
#define DEPTH 128
#define TALL 72  // rows and columns of a block, at most: multiples of a tile's
#define BROAD 96
#define PITCH (DEPTH + 16)  // of the left operand's rows, which then begin in different cache lines
typedef PORTKERN_JOIN(float, WIDE) wide_t;
#define INLINE static inline __attribute__((always_inline))

INLINE int whole_tiles(int rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS; }

// The sums of a tile, of which each row has two vectors.
INLINE void multiply_tile(local const float* a, local const wide_t* b, local wide_t* sums,
                          int depth) {
  wide_t s0[TILE_ROWS], s1[TILE_ROWS];
#pragma unroll
  for (int i = 0; i < TILE_ROWS; ++i) {
    s0[i] = sums[2 * i];
    s1[i] = sums[2 * i + 1];
  }
  for (int p = 0; p < depth; ++p) {
    const wide_t b0 = b[2 * p], b1 = b[2 * p + 1];
#pragma unroll
    for (int i = 0; i < TILE_ROWS; ++i) {
      const wide_t x = a[i * PITCH + p];
      s0[i] += x * b0;
      s1[i] += x * b1;
    }
  }
#pragma unroll
  for (int i = 0; i < TILE_ROWS; ++i) {
    sums[2 * i] = s0[i];
    sums[2 * i + 1] = s1[i];
  }
}

// A row of sums is two vectors in each tile; tiles below one another follow each other.
INLINE void multiply_block(local const float* a, local const wide_t* b, local wide_t* sums,
                           int rows, int cols, int depth) {
  for (int j = 0; j < cols; j += TILE)
    for (int i = 0; i < rows; i += TILE_ROWS)
      multiply_tile(a + i * PITCH, b + j / WIDE * DEPTH, sums + j / WIDE * TALL + 2 * i, depth);
}
INLINE void clear(local wide_t* sums, int rows, int cols) {
  for (int j = 0; j < cols; j += TILE)
    for (int i = 0; i < 2 * whole_tiles(rows); ++i) sums[j / WIDE * TALL + i] = 0.0f;
}
INLINE local float* sums_of(local wide_t* sums, int row, int col) {
  return (local float*)(sums + col / TILE * (2 * TALL) + 2 * row) + col % TILE;
}
// Where term p of column `col` of the right operand stands, with its neighbours.
INLINE local float* right_of(local wide_t* right, int p, int col) {
  return (local float*)(right + col / TILE * (2 * DEPTH) + 2 * p) + col % TILE;
}

// Rows of the left operand as floats; those beyond the last repeat it, so that all are numbers.
INLINE void pack_left(local float* to, global const storage_t* a, long step, int rows, int depth) {
  for (int i = 0; i < whole_tiles(rows); ++i) {
    const long row = min(i, rows - 1) * step;
    for (int p = 0; p < depth; p += VEC) {
      const vec_t v = LOADROW(a, row, p, depth, 0.0f);
      *(local floats_t*)(to + i * PITCH + p) = (floats_t){v};
    }
  }
}
