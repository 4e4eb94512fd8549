import numpy

WG = 256  # knob: 64 128 256 512
KEEP = 32  # knob: 16 32 64
AHEAD = 4  # knob: 2 4 8
NARROW, SLIM = 256, 4

SOURCE = r"""
#include <portkern/rows.h>

#define BLOCK 64  // terms in a chain of additions; the error grows with the number of blocks
#define KEPT (KEEP / VEC)

#ifndef PORTKERN_CPU
// One group per row, which is read once: a work-item has KEEP elements of it in registers, all of
// whose loads are under way at the same time.
kernel void softmax_kept(global const storage_t* restrict x, global storage_t* restrict y,
                         long cols) {
  local float scratch[WG];
  const span_t s = row_span(get_group_id(0), cols);
  const int first = get_local_id(0) * VEC, step = get_local_size(0) * VEC;
  vec_t v[KEPT], tops = -INFINITY, sums = 0.0f;
  load_span(v, KEPT, x, s, first, step, -INFINITY);
#pragma unroll
  for (int k = 0; k < KEPT; ++k) tops = fmax(tops, v[k]);
  const float top = group_max(max_of(tops), scratch);
#pragma unroll
  for (int k = 0; k < KEPT; ++k) sums += v[k] = EXPV(v[k] - top);
  const float scale = 1.0f / group_sum(sum_of(sums), scratch);
#pragma unroll
  for (int k = 0; k < KEPT; ++k) store_span(y, s, first + k * step, v[k] * scale);
}

inline void write(global const storage_t* restrict x, global storage_t* restrict y, span_t s,
                  powers_t p) {
  const int step = get_local_size(0) * VEC;
  const float scale = 1.0f / p.sum;
  for (int i = get_local_id(0) * VEC; i < s.high; i += AHEAD * step) {
    vec_t v[AHEAD];
    load_span(v, AHEAD, x, s, i, step, 0.0f);
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) store_span(y, s, i + k * step, EXPV(v[k] - p.top) * scale);
  }
}

// One group per longer row, which is read twice.
kernel void softmax(global const storage_t* restrict x, global storage_t* restrict y, long cols) {
  local float scratch[WG];
  const span_t s = row_span(get_group_id(0), cols);
  write(x, y, s, group_powers(span_powers(x, s), scratch));
}

// Several groups per row: what each found of its part, then what all found together.
kernel void softmax_parts(global const storage_t* restrict x, global powers_t* found, long cols,
                          long share, int parts) {
  local float scratch[WG];
  const uint row = (uint)get_group_id(0) / parts, part = (uint)get_group_id(0) % parts;
  const powers_t p = group_powers(span_powers(x, part_of(row, cols, share, part)), scratch);
  if (get_local_id(0) == 0) found[get_group_id(0)] = p;
}
kernel void softmax_of_parts(global const storage_t* restrict x, global storage_t* restrict y,
                             global const powers_t* found, long cols, long share, int parts) {
  local float scratch[WG];
  const uint row = (uint)get_group_id(0) / parts, part = (uint)get_group_id(0) % parts;
  const powers_t p = group_powers(found_powers(found + (long)row * parts, parts), scratch);
  write(x, y, part_of(row, cols, share, part), p);
}

// A tile of narrow rows, of which a work-item has at most `most` elements.
inline void narrow(global const storage_t* restrict x, global storage_t* restrict y, rows_t b,
                   local uint4* tile, local float* tops, local float* sums, const int most) {
  fill_tile(tile, x, b);
  for (int r = get_local_id(0) / b.lanes; r < b.tall; r += TILE_WG / b.lanes) {
    float v[TILE_MOST], top = -INFINITY, sum = 0.0f;
    take_row(v, most, tile, b, r, -INFINITY);
#pragma unroll
    for (int j = 0; j < most; ++j) top = fmax(top, v[j]);
    top = lanes_max(top, b, tops);
#pragma unroll
    for (int j = 0; j < most; ++j)
      if (b.lane + j * b.lanes < b.cols) sum += v[j] = exp(v[j] - top);
    const float scale = 1.0f / lanes_sum(sum, b, sums);
#pragma unroll
    for (int j = 0; j < most; ++j) v[j] *= scale;
    put_row(v, most, tile, b, r);
  }
  drain_tile(y, tile, b);
}
kernel void softmax_narrow(global const storage_t* restrict x, global storage_t* restrict y,
                           long rows, int cols, int pitch, int lanes, int tall) {
  local uint4 tile[TILE_VECTORS];
  local float tops[TILE_WG], sums[TILE_WG];
  const rows_t b = block_of(rows, cols, pitch, lanes, tall);
  if (b.cols <= SLIM) narrow(x, y, b, tile, tops, sums, SLIM);
  else narrow(x, y, b, tile, tops, sums, TILE_MOST);
}

#else
#include <portkern/slim_rows.h>
kernel void softmax_slim_cpu(global const storage_t* x, global storage_t* y, long rows, long cols) {
  const slim_t s = {get_global_id(0) * VEC, rows, cols};
  if (s.first >= rows) return;
  vec_t v[VEC], top = -INFINITY, sum = 0.0f;
  for (int j = 0; j < cols; ++j) {
    v[j] = take_column(x, s, j);
    top = v[j] > top ? v[j] : top;
  }
  for (int j = 0; j < cols; ++j) sum += v[j] = EXPV(v[j] - top);
  for (int j = 0; j < cols; ++j) put_column(y, s, j, v[j] / sum);
}

// On a CPU a work-item does a row. A float32's output keeps the terms until their sum is known; a
// half would round them. The rest of a row is apart: loops without branches keep their constants in
// registers.
kernel void softmax_cpu(global const storage_t* restrict x, global storage_t* restrict y,
                        long rows, long cols) {
  if (get_global_id(0) >= rows) return;
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
        queue = program.nearby(queue, 4 * rows * cols)
        if cols <= program.vec:
            size = program.rows_on_cpu(-(-rows // program.vec), program.vec * cols)
            program.softmax_slim_cpu(queue, *size, x, y, rows, cols)
            return
        program.softmax_cpu(queue, *program.rows_on_cpu(rows, cols), x, y, rows, cols)
        return
    if cols <= NARROW:
        sizes, shape = program.tiles(rows, cols)
        program.softmax_narrow(queue, *sizes, x, y, rows, *shape)
        return
    reach = int(cols) + program.vec - 1
    if reach <= KEEP * WG:
        wg = -(-reach // (KEEP * 32)) * 32  # no more than it takes: short rows are many groups
        program.softmax_kept(queue, (rows * wg,), (wg,), x, y, cols)
        return
    parts, share = program.parts(rows, cols, AHEAD * WG * program.vec)
    size = (rows * parts * WG,), (WG,)
    if parts == 1:
        program.softmax(queue, *size, x, y, cols)
        return
    found = program.scratch(8 * int(rows) * parts)
    share_of = share, numpy.int32(parts)
    program.softmax_parts(queue, *size, x, found, cols, *share_of)
    program.softmax_of_parts(queue, *size, x, y, found, cols, *share_of)
