WG = 256  # knob: 64 128 256 512
KEEP = 32  # knob: 16 32 64
FILL = 128  # knob: 64 128 256
NARROW = 256

SOURCE = r"""
#define BLOCK 64  // terms in a chain of additions; the error grows with the number of blocks
#define KEPT (KEEP / VEC)

// One group per row of whole vectors, which is read once: a work-item has KEEP elements of it in
// registers, all of whose loads are under way at the same time.
kernel void softmax_kept(global const storage_t* restrict x, global storage_t* restrict y,
                         long cols) {
  local float scratch[WG];
  const long start = (long)get_group_id(0) * cols;
  const int first = get_local_id(0) * VEC, step = get_local_size(0) * VEC, n = cols;
  vec_t v[KEPT], tops = -INFINITY, sums = 0.0f;
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int i = first + k * step;
    v[k] = i < n ? LOADV(x, start + i) : (vec_t)(-INFINITY);
  }
#pragma unroll
  for (int k = 0; k < KEPT; ++k) tops = fmax(tops, v[k]);
  const float top = group_max(max_of(tops), scratch);
#pragma unroll
  for (int k = 0; k < KEPT; ++k) sums += v[k] = EXPV(v[k] - top);
  const float scale = 1.0f / group_sum(sum_of(sums), scratch);
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int i = first + k * step;
    if (i < n) STOREV(y, start + i, v[k] * scale);
  }
}

// Any row. It is read three times, the second and third time from cache.
kernel void softmax(global const storage_t* x, global storage_t* y, long rows, long cols) {
  local float scratch[WG > FILL ? WG : FILL];
  const long row = row_of(), start = min(row, rows - 1) * cols;
  const long me = get_local_id(0), step = get_local_size(0);
  const long whole = VECTORS(cols) ? cols / VEC * VEC : 0;

  vec_t tops = -INFINITY;
  float top = -INFINITY;
  for (long i = me * VEC; i < whole; i += step * VEC) {
    const vec_t v = LOADV(x, start + i);
    tops = v > tops ? v : tops;
  }
  for (long i = whole + me; i < cols; i += step) top = fmax(top, LOAD(x, start + i));
  top = group_max(fmax(top, max_of(tops)), scratch);

  vec_t sums = 0.0f;
  float sum = 0.0f;
  for (long i = me * VEC; i < whole;) {
    vec_t part = 0.0f;
    for (int k = 0; k < BLOCK && i < whole; ++k, i += step * VEC)
      part += EXPV(LOADV(x, start + i) - top);
    sums += part;
  }
  for (long i = whole + me; i < cols; i += step) sum += exp(LOAD(x, start + i) - top);
  const float scale = 1.0f / group_sum(sum + sum_of(sums), scratch);

  if (row >= rows) return;
  for (long i = me * VEC; i < whole; i += step * VEC)
    STOREV(y, start + i, EXPV(LOADV(x, start + i) - top) * scale);
  for (long i = whole + me; i < cols; i += step)
    STORE(y, start + i, exp(LOAD(x, start + i) - top) * scale);
}

#ifdef PORTKERN_CPU
// On a CPU a work-item does a row. A float32's output keeps the terms until their sum is known; a
// half would round them. The rest of a row is apart: loops without branches keep their constants in
// registers.
kernel void softmax_cpu(global const storage_t* restrict x, global storage_t* restrict y,
                        long cols) {
  const long start = get_global_id(0) * cols, whole = cols / VEC * VEC;
  const bool kept = sizeof(storage_t) == sizeof(float);
  const vec_t rest = LOADROW(x, start, whole, cols, -INFINITY);
  vec_t tops = rest;
  for (long i = 0; i < whole; i += VEC) {
    const vec_t v = LOADV(x, start + i);
    tops = v > tops ? v : tops;
  }
  const float top = max_of(tops);
  const vec_t last = EXPV(rest - top);
  vec_t sums = last;
  for (long i = 0; i < whole;) {
    const long stop = i + BLOCK * VEC < whole ? i + BLOCK * VEC : whole;
    vec_t part = 0.0f;
    for (; i < stop; i += VEC) {
      const vec_t term = EXPV(LOADV(x, start + i) - top);
      if (kept) STOREV(y, start + i, term);
      part += term;
    }
    sums += part;
  }
  const float scale = 1.0f / sum_of(sums);
  for (long i = 0; i < whole; i += VEC)
    STOREV(y, start + i,
           (kept ? LOADV((global const storage_t*)y, start + i)
                 : EXPV(LOADV(x, start + i) - top)) * scale);
  STOREROW(y, start, whole, cols, last * scale);
}
#endif
"""


def softmax(queue, program, x, y, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    if program.cpu:
        program.softmax_cpu(queue, (rows,), (1,), x, y, cols)
        return
    wg = -(-int(cols) // (KEEP * 32)) * 32  # no more than it takes: short rows are many groups
    packed = cols % program.vec == 0
    if packed and NARROW < cols <= KEEP * WG:
        program.softmax_kept(queue, (rows * wg,), (wg,), x, y, cols)
        return
    items = int(-(-cols // (2 * program.vec if packed else 4)))  # that have something to read
    program.softmax(queue, *program.row_groups(rows, items, WG, FILL), x, y, rows, cols)
