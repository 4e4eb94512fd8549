import numpy

WG = 256  # knob: 64 128 256 512
AHEAD = 4  # knob: 2 4 8
NARROW, SLIM = 256, 4

SOURCE = r"""
#include <portkern/rows.h>

// As unsigned numbers floats keep their order: zeros of both signs are equal, a NaN is the largest.
inline uint ordered(float v) {
  const uint u = as_uint(v), sign = 0x80000000u;
  if (v != v) return 0xffffffffu;
  return u << 1 == 0 ? sign : u & sign ? ~u : u | sign;
}

// The larger value, and of equal ones the lower index, is the larger key. Each lane of a vector has
// its best and the number of the vector that had it; the row begins `ahead` of vector 0.
inline ulong key_of(vec_t best, uvec_t number, uint ahead) {
  ulong key = 0;
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    const uint at = ((uint*)&number)[j] * VEC + j - ahead;
    key = max(key, (ulong)ordered(((float*)&best)[j]) << 32 | ~at);
  }
  return key;
}

#ifndef PORTKERN_CPU
// Of all work-items; the first gets the result.
inline ulong group_key(ulong key, local ulong* keys) {
  const int me = get_local_id(0), size = get_local_size(0);
  keys[me] = key;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = me + SLICES; me < SLICES && i < size; i += SLICES) key = max(key, keys[i]);
  if (me < SLICES) keys[me] = key;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = 1; me == 0 && i < SLICES; ++i) key = max(key, keys[i]);
  return key;
}

// What stands before a row or behind it is -infinity too, but its place is above all others.
inline ulong span_key(global const storage_t* x, span_t s, long start) {
  const int step = get_local_size(0) * VEC;
  vec_t best = -INFINITY;
  uvec_t number = (uint)get_local_id(0);  // the first: a row may be all -infinity
  for (int i = get_local_id(0) * VEC; i < s.high; i += AHEAD * step) {
    vec_t v[AHEAD];
    load_span(v, AHEAD, x, s, i, step, -INFINITY);
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) {
      const ivec_t better = (best == best) & ~(v[k] <= best);  // a NaN is, but only the first
      best = better ? v[k] : best;
      number = better ? (uvec_t)((uint)(i + k * step) / VEC) : number;
    }
  }
  return key_of(best, number, (uint)(start - s.base));
}

kernel void argmax(global const storage_t* restrict x, global long* restrict index, long cols) {
  local ulong keys[WG];
  const long row = get_group_id(0);
  const ulong key = group_key(span_key(x, row_span(row, cols), row * cols), keys);
  if (get_local_id(0) == 0) index[row] = ~(uint)key;
}

// Several groups per row: what each found in its part, then what all found together.
kernel void argmax_parts(global const storage_t* restrict x, global ulong* found, long cols,
                         long share, int parts) {
  local ulong keys[WG];
  const uint row = (uint)get_group_id(0) / parts, part = (uint)get_group_id(0) % parts;
  const span_t s = part_of(row, cols, share, part);
  const ulong key = group_key(s.high > 0 ? span_key(x, s, (long)row * cols) : 0, keys);
  if (get_local_id(0) == 0) found[get_group_id(0)] = key;
}
kernel void argmax_of_parts(global const ulong* found, global long* restrict index, int parts) {
  local ulong keys[WG];
  const long row = get_group_id(0);
  ulong key = 0;
  for (int i = get_local_id(0); i < parts; i += get_local_size(0))
    key = max(key, found[row * parts + i]);
  key = group_key(key, keys);
  if (get_local_id(0) == 0) index[row] = ~(uint)key;
}

kernel void argmax_single(global long* index, long rows) {
  if (get_global_id(0) < rows) index[get_global_id(0)] = 0;
}

// A tile of narrow rows, of which a work-item has at most `most` elements.
inline void narrow(global const storage_t* restrict x, global long* restrict index, rows_t b,
                   local uint4* tile, local ulong* keys, const int most) {
  fill_tile(tile, x, b);
  const int me = get_local_id(0);
  for (int r = me / b.lanes; r < b.tall; r += TILE_WG / b.lanes) {
    float v[TILE_MOST];
    take_row(v, most, tile, b, r, -INFINITY);
    float best = v[0];
    int at = b.lane;
#pragma unroll
    for (int j = 1; j < most; ++j) {
      const bool better = best == best && !(v[j] <= best);
      best = better ? v[j] : best;
      at = better ? b.lane + j * b.lanes : at;
    }
    if (b.lanes > 1) {  // then this is the only row
      ulong key = keys[me] = (ulong)ordered(best) << 32 | ~(uint)at;
      barrier(CLK_LOCAL_MEM_FENCE);
      for (int i = 0; i < b.lanes; ++i) key = max(key, keys[me - b.lane + i]);
      at = ~(uint)key;
    }
    if (b.lane == 0 && r < b.rows) index[b.first + r] = at;
  }
}
kernel void argmax_narrow(global const storage_t* restrict x, global long* restrict index,
                          long rows, int cols, int pitch, int lanes, int tall) {
  local uint4 tile[TILE_VECTORS];
  local ulong keys[TILE_WG];
  const rows_t b = block_of(rows, cols, pitch, lanes, tall);
  if (b.cols <= SLIM) narrow(x, index, b, tile, keys, SLIM);
  else narrow(x, index, b, tile, keys, TILE_MOST);
}

#else
#define BLOCK 1024

kernel void argmax_single_cpu(global long* index, long rows) {
  const long first = get_global_id(0) * BLOCK;
  for (long i = first; i < min(first + BLOCK, rows); ++i) index[i] = 0;
}

// On a CPU a work-item does a row, AHEAD vectors at a time.
kernel void argmax_cpu(global const storage_t* x, global long* index, long rows, long cols) {
  const long row = get_global_id(0), start = row * cols;
  if (row >= rows) return;
  if (cols < 2 * VEC) {
    float best = LOAD(x, start);
    int at = 0;
    for (int i = 1; i < cols && best == best; ++i) {  // a NaN is the largest, but only the first
      const float v = LOAD(x, start + i);
      at = v <= best ? at : i;
      best = v <= best ? best : v;
    }
    index[row] = at;
    return;
  }
  vec_t best = -INFINITY;
  uvec_t at = (uint)0;  // the first: a row may be all -infinity
  uint number = 0;
  for (long i = 0; i < cols; i += AHEAD * VEC) {
    vec_t v[AHEAD];
    for (int k = 0; k < AHEAD; ++k) v[k] = LOADROW(x, start, i + k * VEC, cols, -INFINITY);
    for (int k = 0; k < AHEAD; ++k, ++number) {
      const ivec_t better = (best == best) & ~(v[k] <= best);  // a NaN is, but only the first
      best = better ? v[k] : best;
      at = better ? (uvec_t)(number) : at;
    }
  }
  index[row] = ~(uint)key_of(best, at, 0);
}
#endif
"""


def argmax(queue, program, x, index, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    if program.cpu:
        queue = program.nearby(queue, rows * cols)
        if cols == 1:  # which need not be read
            program.argmax_single_cpu(queue, (-(-rows // 1024),), (1,), index, rows)
            return
        program.argmax_cpu(queue, *program.rows_on_cpu(rows, cols), x, index, rows, cols)
        return
    if cols == 1:  # which need not be read
        program.argmax_single(queue, (-(-rows // WG) * WG,), (WG,), index, rows)
        return
    if cols <= NARROW:
        sizes, shape = program.tiles(rows, cols)
        program.argmax_narrow(queue, *sizes, x, index, rows, *shape)
        return
    keep = AHEAD * program.vec
    parts, share = program.parts(rows, cols, keep * WG)
    if parts == 1:
        wg = max(32, min(WG, -(-int(cols) // (keep * 32)) * 32))
        program.argmax(queue, (rows * wg,), (wg,), x, index, cols)
        return
    found, count = program.scratch(8 * int(rows) * parts), numpy.int32(parts)
    size = (rows * parts * WG,), (WG,)
    program.argmax_parts(queue, *size, x, found, cols, share, count)
    program.argmax_of_parts(queue, (rows * 64,), (64,), found, index, count)
