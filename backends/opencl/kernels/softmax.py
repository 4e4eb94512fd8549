WG = 256  # knob: 64 128 256 512

SOURCE = r"""
#define BLOCK 64  // terms in a chain of additions; the error grows with the number of blocks

// One group per row; on a CPU a group is one work-item. A row is read three times, the second and
// third time from cache.
kernel void softmax(global const storage_t* x, global storage_t* y, long cols) {
  local float scratch[WG];
  const long start = (long)get_group_id(0) * cols, me = get_local_id(0), step = get_local_size(0);
  const long whole = VECTORS(cols) ? cols / VEC * VEC : 0;

  vec_t tops = -INFINITY;
  float top = -INFINITY;
  for (long i = me * VEC; i < whole; i += step * VEC) tops = fmax(tops, LOADV(x, start + i));
  for (long i = whole + me; i < cols; i += step) top = fmax(top, LOAD(x, start + i));
  top = group_max(fmax(top, max_of(tops)), scratch);

  vec_t sums = 0.0f;
  float sum = 0.0f;
  for (long i = me * VEC; i < whole;) {
    vec_t part = 0.0f;
    for (int k = 0; k < BLOCK && i < whole; ++k, i += step * VEC)
      part += exp(LOADV(x, start + i) - top);
    sums += part;
  }
  for (long i = whole + me; i < cols; i += step) sum += exp(LOAD(x, start + i) - top);
  const float scale = 1.0f / group_sum(sum + sum_of(sums), scratch);

  for (long i = me * VEC; i < whole; i += step * VEC)
    STOREV(y, start + i, exp(LOADV(x, start + i) - top) * scale);
  for (long i = whole + me; i < cols; i += step)
    STORE(y, start + i, exp(LOAD(x, start + i) - top) * scale);
}
"""


def softmax(queue, program, x, y, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    wg = 1 if program.cpu else WG
    program.softmax(queue, (rows * wg,), (wg,), x, y, cols)
