WG = 256  # knob: 64 128 256 512
KEEP = 32  # knob: 16 32 64
FILL = 128  # knob: 64 128 256
NARROW = 256

SOURCE = r"""
#define BLOCK 64  // terms in a chain of additions; the error grows with the number of blocks
#define CHAIN 16  // the same where elements come one by one: few values, so roundings repeat
#define KEPT (KEEP / VEC)

// One group per row of whole vectors, which is read once: a work-item has KEEP elements of it in
// registers, all of whose loads are under way at the same time.
kernel void rmsnorm_kept(global const storage_t* restrict x,
                         global const storage_t* restrict weight, global storage_t* restrict y,
                         long cols, float eps) {
  local float scratch[WG];
  const long start = (long)get_group_id(0) * cols;
  const int first = get_local_id(0) * VEC, step = get_local_size(0) * VEC, n = cols;
  vec_t v[KEPT], squares = 0.0f;
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int i = first + k * step;
    v[k] = i < n ? LOADV(x, start + i) : (vec_t)(0.0f);
  }
#pragma unroll
  for (int k = 0; k < KEPT; ++k) squares += v[k] * v[k];
  const float mean = group_sum(sum_of(squares), scratch) / (float)cols;
  const float scale = 1.0f / sqrt(mean + eps);
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int i = first + k * step;
    if (i < n) STOREV(y, start + i, v[k] * scale * LOADV(weight, i));
  }
}

// Any row; on a CPU a group is one work-item.
kernel void rmsnorm(global const storage_t* x, global const storage_t* weight, global storage_t* y,
                    long rows, long cols, float eps) {
  local float scratch[WG > FILL ? WG : FILL];
  const long row = row_of(), start = min(row, rows - 1) * cols;
  const long me = get_local_id(0), step = get_local_size(0);
  const long whole = VECTORS(cols) ? cols / VEC * VEC : 0;
  vec_t squares = 0.0f;
  float square = 0.0f;
  for (long i = me * VEC; i < whole;) {
    vec_t part = 0.0f;
    for (int k = 0; k < BLOCK && i < whole; ++k, i += step * VEC) {
      const vec_t v = LOADV(x, start + i);
      part += v * v;
    }
    squares += part;
  }
  for (long i = whole + me; i < cols;) {
    float part = 0.0f;
    for (int k = 0; k < CHAIN && i < cols; ++k, i += step) {
      const float v = LOAD(x, start + i);
      part += v * v;
    }
    square += part;
  }
  square = group_sum(square + sum_of(squares), scratch);
  const float scale = 1.0f / sqrt(square / (float)cols + eps);
  if (row >= rows) return;
  for (long i = me * VEC; i < whole; i += step * VEC)
    STOREV(y, start + i, LOADV(x, start + i) * scale * LOADV(weight, i));
  for (long i = whole + me; i < cols; i += step)
    STORE(y, start + i, LOAD(x, start + i) * scale * LOAD(weight, i));
}
"""


def rmsnorm(queue, program, x, weight, y, *, rows, cols, eps):
    if rows == 0 or cols == 0:
        return
    wg = -(-int(cols) // (KEEP * 32)) * 32  # no more than it takes: short rows are many groups
    packed = cols % program.vec == 0
    if packed and NARROW < cols <= KEEP * WG and not program.cpu:
        program.rmsnorm_kept(queue, (rows * wg,), (wg,), x, weight, y, cols, eps)
        return
    items = int(-(-cols // (2 * program.vec if packed else 4)))  # that have something to read
    sizes = program.row_groups(rows, items, WG, FILL)
    program.rmsnorm(queue, *sizes, x, weight, y, rows, cols, eps)
