WG = 256  # knob: 128 256 512
TILE = 64  # knob: 32 64

SOURCE = r"""
// Elements are moved, never converted: integers of their size.
#ifdef PORTKERN_FLOAT32
typedef uint bits_t;
typedef uvec_t bits_v;
#else
typedef ushort bits_t;
typedef hvec_t bits_v;
#endif
#define ACROSS (TILE / VEC)  // vectors along a side of the tile
#define ROUNDS ((TILE * ACROSS + WG - 1) / WG)

// Sides of whole vectors: both the loads and the stores are vectors, which a tile turns.
kernel void transpose(global const bits_t* restrict x, global bits_t* restrict y, long rows,
                      long cols) {
  // 4 bytes more to a row: a column's elements lie in different banks
  local bits_t tile[TILE][TILE + 4 / sizeof(bits_t)];
  const int me = get_local_id(0);
  const long left = (long)get_group_id(0) * TILE, top = (long)get_group_id(1) * TILE;
  bits_v v[ROUNDS];
#pragma unroll
  for (int k = 0; k < ROUNDS; ++k) {
    const int i = (k * WG + me) / ACROSS, j = (k * WG + me) % ACROSS * VEC;
    if (i < TILE && top + i < rows && left + j < cols)
      v[k] = *(global const bits_v*)(x + (top + i) * cols + left + j);
  }
#pragma unroll
  for (int k = 0; k < ROUNDS; ++k) {
    const int i = (k * WG + me) / ACROSS, j = (k * WG + me) % ACROSS * VEC;
    if (i < TILE)
      for (int e = 0; e < VEC; ++e) tile[i][j + e] = ((bits_t*)&v[k])[e];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int k = 0; k < ROUNDS; ++k) {
    const int j = (k * WG + me) / ACROSS, i = (k * WG + me) % ACROSS * VEC;
    if (j >= TILE || top + i >= rows || left + j >= cols) continue;
    bits_v turned;
#pragma unroll
    for (int e = 0; e < VEC; ++e) ((bits_t*)&turned)[e] = tile[i + e][j];
    *(global bits_v*)(y + (left + j) * rows + top + i) = turned;
  }
}

kernel void transpose_odd(global const bits_t* x, global bits_t* y, long rows, long cols) {
  local bits_t tile[TILE][TILE + 4 / sizeof(bits_t)];
  const int across = get_local_id(0), down = get_local_id(1), step = get_local_size(1);
  const long left = (long)get_group_id(0) * TILE, top = (long)get_group_id(1) * TILE;
#pragma unroll 4
  for (int i = down; i < TILE; i += step)
    if (top + i < rows && left + across < cols)
      tile[i][across] = x[(top + i) * cols + left + across];
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 4
  for (int i = down; i < TILE; i += step)
    if (left + i < cols && top + across < rows)
      y[(left + i) * rows + top + across] = tile[across][i];
}

// On a CPU local memory is memory: a work-item moves one tile.
kernel void transpose_cpu(global const bits_t* x, global bits_t* y, long rows, long cols) {
  const long left = (long)get_global_id(0) * CPU_TILE, top = (long)get_global_id(1) * CPU_TILE;
  const long right = min(left + CPU_TILE, cols), bottom = min(top + CPU_TILE, rows);
  bits_t tile[CPU_TILE][CPU_TILE];
  for (long i = top; i < bottom; ++i)
    for (long j = left; j < right; ++j) tile[i - top][j - left] = x[i * cols + j];
  for (long j = left; j < right; ++j)
    for (long i = top; i < bottom; ++i) y[j * rows + i] = tile[i - top][j - left];
}
"""
CPU_TILE = 32  # knob: 16 32 64


def transpose(queue, program, x, y, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    tile = CPU_TILE if program.cpu else TILE
    across, down = -(-cols // tile), -(-rows // tile)
    if program.cpu:
        program.transpose_cpu(queue, (across, down), (1, 1), x, y, rows, cols)
    elif rows % program.vec or cols % program.vec:
        step = WG // TILE
        program.transpose_odd(queue, (across * TILE, down * step), (TILE, step), x, y, rows, cols)
    else:
        program.transpose(queue, (across * WG, down), (WG, 1), x, y, rows, cols)
