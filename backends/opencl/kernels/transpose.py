TILE = 32  # knob: 16 32 64
DOWN = 8  # knob: 4 8 16

SOURCE = r"""
// Elements are moved, never converted: integers of their size.
#ifdef PORTKERN_FLOAT32
typedef uint bits_t;
#else
typedef ushort bits_t;
#endif

kernel void transpose(global const bits_t* x, global bits_t* y, long rows, long cols) {
  local bits_t tile[TILE][TILE + 1];  // one more column: a column's elements lie in different banks
  const int across = get_local_id(0), down = get_local_id(1);
  const long left = (long)get_group_id(0) * TILE, top = (long)get_group_id(1) * TILE;
  for (int i = down; i < TILE; i += DOWN)
    if (top + i < rows && left + across < cols)
      tile[i][across] = x[(top + i) * cols + left + across];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = down; i < TILE; i += DOWN)
    if (left + i < cols && top + across < rows)
      y[(left + i) * rows + top + across] = tile[across][i];
}

// On a CPU local memory is memory: a work-item moves one tile.
kernel void transpose_cpu(global const bits_t* x, global bits_t* y, long rows, long cols) {
  const long left = (long)get_global_id(0) * TILE, top = (long)get_global_id(1) * TILE;
  const long right = min(left + TILE, cols), bottom = min(top + TILE, rows);
  bits_t tile[TILE][TILE];
  for (long i = top; i < bottom; ++i)
    for (long j = left; j < right; ++j) tile[i - top][j - left] = x[i * cols + j];
  for (long j = left; j < right; ++j)
    for (long i = top; i < bottom; ++i) y[j * rows + i] = tile[i - top][j - left];
}
"""


def transpose(queue, program, x, y, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    across, down = -(-cols // TILE), -(-rows // TILE)
    if program.cpu:
        program.transpose_cpu(queue, (across, down), (1, 1), x, y, rows, cols)
    else:
        size = (across * TILE, down * DOWN)
        program.transpose(queue, size, (TILE, DOWN), x, y, rows, cols)
