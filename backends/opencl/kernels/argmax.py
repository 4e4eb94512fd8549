WG = 256  # knob: 64 128 256 512
AHEAD = 4  # knob: 2 4 8
FILL = 128  # knob: 64 128 256

SOURCE = r"""
// As unsigned numbers floats keep their order: zeros of both signs are equal, a NaN is the largest.
inline uint ordered(float v) {
  const uint u = as_uint(v), sign = 0x80000000u;
  if (v != v) return 0xffffffffu;
  return u << 1 == 0 ? sign : u & sign ? ~u : u | sign;
}

// One group per row (one work-item on a CPU), AHEAD vectors at a time. Each lane keeps its largest
// element and the number of the vector that had it; no other vector's lane has the same index.
kernel void argmax(global const storage_t* x, global long* index, long rows, long cols) {
  local ulong all[WG > FILL ? WG : FILL];
  const int me = get_local_id(0), size = get_local_size(0);
  const long row = row_of(), start = min(row, rows - 1) * cols, step = size * VEC;
  local ulong* keys = all + get_local_id(1) * size;
  vec_t best = -INFINITY;
  uvec_t at = (uint)me;  // the lane's first: a row may be all -infinity
  uint number = me;
  for (long i = me * VEC; i < cols; i += AHEAD * step) {
    vec_t v[AHEAD];
    for (int k = 0; k < AHEAD; ++k) v[k] = LOADROW(x, start, i + k * step, cols, -INFINITY);
    for (int k = 0; k < AHEAD; ++k, number += size) {
      const ivec_t better = (best == best) & ~(v[k] <= best);  // a NaN is, but only the first
      best = better ? v[k] : best;
      at = better ? (uvec_t)(number) : at;
    }
  }
  // The larger value, and of equal ones the lower index, is the larger key.
  float values[VEC];
  uint numbers[VEC];
  PORTKERN_JOIN(vstore, VEC)(best, 0, values);
  PORTKERN_JOIN(vstore, VEC)(at, 0, numbers);
  ulong key = 0;
  for (int j = 0; j < VEC; ++j)
    key = max(key, (ulong)ordered(values[j]) << 32 | ~(numbers[j] * VEC + j));
  keys[me] = key;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int width = size / 2; width > 0; width /= 2) {
    if (me < width) keys[me] = max(keys[me], keys[me + width]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (me == 0 && row < rows) index[row] = ~(uint)keys[0];
}
"""


def argmax(queue, program, x, index, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    items = int(-(-cols // (AHEAD * program.vec)))  # that have something to read
    program.argmax(queue, *program.row_groups(rows, items, WG, FILL), x, index, rows, cols)
