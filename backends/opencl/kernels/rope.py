WG = 256  # knob: 64 128 256 512

SOURCE = r"""
// LOADROW of a table of float32, whatever the cell's dtype.
inline vec_t angles(global const float* p, long start, long i, long n) {
  if (VECTORS(start) && i + VEC <= n) {
#ifdef PORTKERN_CPU
    return ((global const floats_t*)(p + start + i))->v;
#else
    return *(global const vec_t*)(p + start + i);
#endif
  }
  float v[VEC];
  for (int j = 0; j < VEC; ++j) v[j] = i + j < n ? p[start + i + j] : 0.0f;
  return PORTKERN_JOIN(vload, VEC)(0, v);
}

// Of a row, which is a head of a token, a vector of both halves.
inline void turn(global const storage_t* x, global const float* cosines, global const float* sines,
                 global storage_t* y, long row, long i, long heads, long half_) {
  const long token = row <= UINT_MAX ? (uint)row / (uint)heads : row / heads;
  const long first = row * 2 * half_, second = first + half_, table = token * half_;
  const vec_t a = LOADROW(x, first, i, half_, 0.0f), b = LOADROW(x, second, i, half_, 0.0f);
  const vec_t c = angles(cosines, table, i, half_), s = angles(sines, table, i, half_);
  STOREROW(y, first, i, half_, a * c - b * s);
  STOREROW(y, second, i, half_, b * c + a * s);
}

// A work-item has a vector, of whatever row: `chunks` to a row.
kernel void rope(global const storage_t* x, global const float* cosines, global const float* sines,
                 global storage_t* y, long rows, long heads, long half_, long chunks) {
  const long item = get_global_id(0);
  const long row = rows * chunks <= UINT_MAX ? (uint)item / (uint)chunks : item / chunks;
  if (row < rows)
    turn(x, cosines, sines, y, row, (item - row * chunks) * VEC, heads, half_);
}

// A work-item of a CPU has a row.
kernel void rope_cpu(global const storage_t* x, global const float* cosines,
                     global const float* sines, global storage_t* y, long rows, long heads,
                     long half_) {
  const long row = (long)get_group_id(0) * get_local_size(1) + get_local_id(1);
  for (long i = 0; row < rows && i < half_; i += VEC)
    turn(x, cosines, sines, y, row, i, heads, half_);
}
"""


def rope(queue, program, x, cos, sin, y, *, tokens, heads, half):
    if tokens == 0 or heads == 0 or half == 0:
        return
    rows = tokens * heads
    if program.cpu:
        queue = program.nearby(queue, 2 * rows * half)
        [items], [tall] = program.rows_on_cpu(rows, 2 * half)
        size = (items // tall, tall)
        program.rope_cpu(queue, size, (1, tall), x, cos, sin, y, rows, heads, half)
        return
    chunks = -(-half // program.vec)
    groups = -(-rows * chunks // WG)
    program.rope(queue, (groups * WG,), (WG,), x, cos, sin, y, rows, heads, half, chunks)
