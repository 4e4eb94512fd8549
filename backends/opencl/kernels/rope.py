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

// Local rows are heads, of one token after the other; a work-item turns a vector of both halves.
kernel void rope(global const storage_t* x, global const float* cosines, global const float* sines,
                 global storage_t* y, long tokens, long heads, long half_) {
  const long row = (long)get_group_id(0) * get_local_size(1) + get_local_id(1);
  if (row >= tokens * heads) return;
  const long step = get_local_size(0) * VEC;
  const long first = row * 2 * half_, second = first + half_, table = row / heads * half_;
  for (long i = get_local_id(0) * VEC; i < half_; i += step) {
    const vec_t a = LOADROW(x, first, i, half_, 0.0f), b = LOADROW(x, second, i, half_, 0.0f);
    const vec_t c = angles(cosines, table, i, half_), s = angles(sines, table, i, half_);
    STOREROW(y, first, i, half_, a * c - b * s);
    STOREROW(y, second, i, half_, b * c + a * s);
  }
}
"""


def rope(queue, program, x, cos, sin, y, *, tokens, heads, half):
    if tokens == 0 or heads == 0 or half == 0:
        return
    arguments = (x, cos, sin, y, tokens, heads, half)
    if program.cpu:
        queue = program.nearby(queue, 2 * tokens * heads * half)
        [rows], [tall] = program.rows_on_cpu(tokens * heads, 2 * half)
        program.rope(queue, (rows // tall, tall), (1, tall), *arguments)
        return
    chunks = int(-(-half // program.vec))
    across = min(WG, 1 << (chunks - 1).bit_length())
    down = WG // across
    size = (-(-(tokens * heads) // down) * across, down)
    program.rope(queue, size, (across, down), *arguments)
