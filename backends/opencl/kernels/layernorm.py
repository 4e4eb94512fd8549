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
kernel void layernorm_kept(global const storage_t* restrict x,
                           global const storage_t* restrict weight,
                           global const storage_t* restrict bias, global storage_t* restrict y,
                           long cols, float eps) {
  local float scratch[WG];
  const long start = (long)get_group_id(0) * cols;
  const int from = get_local_id(0) * VEC, step = get_local_size(0) * VEC, n = cols;
  // Shifted by one of its elements, a row's sum keeps the digits in which they differ.
  const float first = LOAD(x, start);
  vec_t v[KEPT], sums = 0.0f, squares = 0.0f;
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int i = from + k * step;
    v[k] = i < n ? LOADV(x, start + i) : (vec_t)(first);
  }
#pragma unroll
  for (int k = 0; k < KEPT; ++k) sums += v[k] - first;
  const float mean = first + group_sum(sum_of(sums), scratch) / (float)cols;
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    v[k] -= mean;
    squares += from + k * step < n ? v[k] * v[k] : (vec_t)(0.0f);
  }
  const float variance = group_sum(sum_of(squares), scratch) / (float)cols;
  const float scale = 1.0f / sqrt(variance + eps);
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int i = from + k * step;
    const int at = min(i, n - VEC);  // no branch, so that the loads need not wait for each other
    const vec_t w = LOADV(weight, at), b = LOADV(bias, at);
    v[k] = v[k] * scale * w + b;
    if (i < n) STOREV(y, start + i, v[k]);
  }
}

// The sums of x - shift and of its square, over a row. E[x^2] - E[x]^2 would lose every digit where
// the mean is large, so the variance takes a pass of its own, with the mean as its shift.
inline float moment(global const storage_t* x, long start, long cols, float shift, bool square,
                    local float* scratch) {
  const long me = get_local_id(0), step = get_local_size(0);
  const long whole = VECTORS(cols) ? cols / VEC * VEC : 0;
  vec_t sums = 0.0f;
  float sum = 0.0f;
  for (long i = me * VEC; i < whole;) {
    vec_t part = 0.0f;
    for (int k = 0; k < BLOCK && i < whole; ++k, i += step * VEC) {
      const vec_t v = LOADV(x, start + i) - shift;
      part += square ? v * v : v;
    }
    sums += part;
  }
  for (long i = whole + me; i < cols;) {
    float part = 0.0f;
    for (int k = 0; k < CHAIN && i < cols; ++k, i += step) {
      const float v = LOAD(x, start + i) - shift;
      part += square ? v * v : v;
    }
    sum += part;
  }
  return group_sum(sum + sum_of(sums), scratch);
}

// Any row; on a CPU a group is one work-item.
kernel void layernorm(global const storage_t* x, global const storage_t* weight,
                      global const storage_t* bias, global storage_t* y, long rows, long cols,
                      float eps) {
  local float scratch[WG > FILL ? WG : FILL];
  const long row = row_of(), start = min(row, rows - 1) * cols;
  const long me = get_local_id(0), step = get_local_size(0);
  const long whole = VECTORS(cols) ? cols / VEC * VEC : 0;
  // Shifted by one of its elements, a row's sum keeps the digits in which they differ.
  const float first = LOAD(x, start);
  const float mean = first + moment(x, start, cols, first, false, scratch) / (float)cols;
  const float variance = moment(x, start, cols, mean, true, scratch) / (float)cols;
  const float scale = 1.0f / sqrt(variance + eps);
  if (row >= rows) return;
  for (long i = me * VEC; i < whole; i += step * VEC)
    STOREV(y, start + i, (LOADV(x, start + i) - mean) * scale * LOADV(weight, i) + LOADV(bias, i));
  for (long i = whole + me; i < cols; i += step)
    STORE(y, start + i, (LOAD(x, start + i) - mean) * scale * LOAD(weight, i) + LOAD(bias, i));
}
"""


def layernorm(queue, program, x, weight, bias, y, *, rows, cols, eps):
    if rows == 0 or cols == 0:
        return
    wg = -(-int(cols) // (KEEP * 32)) * 32  # no more than it takes: short rows are many groups
    packed = cols % program.vec == 0
    if packed and NARROW < cols <= KEEP * WG and not program.cpu:
        program.layernorm_kept(queue, (rows * wg,), (wg,), x, weight, bias, y, cols, eps)
        return
    items = int(-(-cols // (2 * program.vec if packed else 4)))  # that have something to read
    sizes = program.row_groups(rows, items, WG, FILL)
    program.layernorm(queue, *sizes, x, weight, bias, y, rows, cols, eps)
