import numpy

WG = 256  # knob: 64 128 256 512
SLICE = 16  # knob: 8 16 32
NARROW, SLIM = 256, 4

SOURCE = r"""
#include <portkern/rows.h>

// The row's sum so far goes from round to round, its rounding error beside it (Knuth's two-sum),
// so that the last column is as exact as the first. An infinity has no error.
inline void carry_on(float* carry, float* error, float sum) {
  const float add = sum + *error, next = *carry + add, part = next - *carry;
  *error = (*carry - (next - part)) + (add - part);
  if (*error != *error) *error = 0.0f;
  *carry = next;
}

#ifndef PORTKERN_CPU
// In each round a work-item has a vector in each of four stripes as wide as the group, which scans
// four sums at once: one work-item those of a SLICE of neighbours, then everyone the slices'. That
// takes two barriers. What stands before the span comes as `carry`, its rounding error beside it.
inline void scan(global const storage_t* restrict x, global storage_t* restrict y, span_t span,
                 float carry, float error, local float4* sums, local float4* slices) {
  const int me = get_local_id(0), size = get_local_size(0), step = size * VEC;
  const int mine = me + me / SLICE;  // a gap after each slice: they begin in different banks
  for (int round = 0; round < span.high; round += 4 * step) {
    const int first = round + me * VEC;
    vec_t v[4];
    load_span(v, 4, x, span, first, step, 0.0f);
    float4 sum;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int j = 1; j < VEC; ++j) ((float*)&v[k])[j] += ((float*)&v[k])[j - 1];
      ((float*)&sum)[k] = ((float*)&v[k])[VEC - 1];
    }
    sums[mine] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me < size / SLICE) {
      float4 total = 0.0f;
#pragma unroll
      for (int j = 0; j < SLICE; ++j) {
        const float4 next = sums[me * (SLICE + 1) + j];
        sums[me * (SLICE + 1) + j] = total;
        total += next;
      }
      slices[me] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float4 before = sums[mine], all = 0.0f;
    for (int s = 0; s < size / SLICE; ++s) {
      if (s == me / SLICE) before += all;
      all += slices[s];
    }
    before += (float4)(0.0f, all.x, all.x + all.y, (all.x + all.y) + all.z);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      store_span(y, span, first + k * step, carry + (error + (((float*)&before)[k] + v[k])));
    carry_on(&carry, &error, (all.x + all.y) + (all.z + all.w));
  }
}

// One group per row.
kernel void cumsum(global const storage_t* restrict x, global storage_t* restrict y, long cols) {
  local float4 sums[WG + WG / SLICE], slices[WG / SLICE];
  scan(x, y, row_span(get_group_id(0), cols), 0.0f, 0.0f, sums, slices);
}

// Several groups per row: the sums of their parts first, then scans that begin with those before. A
// look-back would read once, but waits for groups that need not be running.
kernel void cumsum_parts(global const storage_t* restrict x, global float* found, long cols,
                         long share, int parts) {
  local float scratch[WG];
  const uint row = (uint)get_group_id(0) / parts, part = (uint)get_group_id(0) % parts;
  const span_t span = part_of(row, cols, share, part);
  const float sum = group_sum(span_moment(x, span, 0.0f, false), scratch);
  if (get_local_id(0) == 0) found[get_group_id(0)] = sum;
}
kernel void cumsum_of_parts(global const storage_t* restrict x, global storage_t* restrict y,
                            global const float* found, long cols, long share, int parts) {
  local float4 sums[WG + WG / SLICE], slices[WG / SLICE];
  local float scratch[WG];
  const uint row = (uint)get_group_id(0) / parts, part = (uint)get_group_id(0) % parts;
  float carry = 0.0f, error = 0.0f;
  for (int i = get_local_id(0); i < part; i += get_local_size(0))
    carry_on(&carry, &error, found[(long)row * parts + i]);
  carry = group_sum(carry, scratch);
  error = group_sum(error, scratch);
  scan(x, y, part_of(row, cols, share, part), carry, error, sums, slices);
}

// A tile of narrow rows. A work-item has neighbours, of an odd number, so that those of the lanes
// lie in different banks.
inline void narrow(global const storage_t* restrict x, global storage_t* restrict y, rows_t b,
                   local uint4* tile, local float* sums, const int most) {
  const int me = get_local_id(0), each = b.lanes == 1 ? b.cols : (b.cols - 1) / b.lanes + 1 | 1;
  const int from = b.lane * each, count = min(each, b.cols - from);
  fill_tile(tile, x, b);
  for (int r = me / b.lanes; r < b.tall; r += TILE_WG / b.lanes) {
    local raw_t* row = (local raw_t*)tile + min(r, b.rows - 1) * b.pitch + from;
    float v[TILE_MOST + 1], sum = 0.0f, before = 0.0f;
#pragma unroll
    for (int j = 0; j < most; ++j) v[j] = sum += j < count ? TILE_LOAD(row, j) : 0.0f;
    if (b.lanes > 1) {  // then this is the only row
      sums[me] = sum;
      barrier(CLK_LOCAL_MEM_FENCE);
      for (int i = 0; i < b.lanes; ++i) before += i < b.lane ? sums[me - b.lane + i] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < most; ++j)
      if (j < count && r < b.rows) TILE_STORE(row, j, before + v[j]);
  }
  drain_tile(y, tile, b);
}
kernel void cumsum_narrow(global const storage_t* restrict x, global storage_t* restrict y,
                          long rows, int cols, int pitch, int lanes, int tall) {
  local uint4 tile[TILE_VECTORS];
  local float sums[TILE_WG];
  const rows_t b = block_of(rows, cols, pitch, lanes, tall);
  if (b.cols <= SLIM) narrow(x, y, b, tile, sums, SLIM);
  else narrow(x, y, b, tile, sums, TILE_MOST + 1);
}

#else
#include <portkern/slim_rows.h>
kernel void cumsum_slim_cpu(global const storage_t* x, global storage_t* y, long rows, long cols) {
  const slim_t s = {get_global_id(0) * VEC, rows, cols};
  if (s.first >= rows) return;
  vec_t sum = 0.0f;
  for (long j = 0; j < cols; ++j) put_column(y, s, j, sum += take_column(x, s, j));
}

// On a CPU a work-item does a row, a vector at a time: three rounds scan its eight elements.
kernel void cumsum_cpu(global const storage_t* x, global storage_t* y, long rows, long cols) {
  if (get_global_id(0) >= rows) return;
  const long start = get_global_id(0) * cols;
  float carry = 0.0f, error = 0.0f;
  for (long first = 0; first < cols; first += VEC) {
    const bool whole = first + VEC <= cols;
    float8 v = whole ? LOADV(x, start + first) : LOADROW(x, start, first, cols, 0.0f);
    v += (float8)(0.0f, v.s012, v.s3456);
    v += (float8)(0.0f, 0.0f, v.s01, v.s2345);
    v += (float8)((float4)(0.0f), v.s0123);
    const float8 done = carry + (error + v);
    if (whole) STOREV(y, start + first, done);
    else STOREROW(y, start, first, cols, done);
    carry_on(&carry, &error, v.s7);
  }
}
#endif
"""


def cumsum(queue, program, x, y, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    if program.cpu:
        queue = program.nearby(queue, 2 * rows * cols)
        if cols < program.vec:
            size = program.rows_on_cpu(-(-rows // program.vec), program.vec * cols)
            program.cumsum_slim_cpu(queue, *size, x, y, rows, cols)
            return
        program.cumsum_cpu(queue, *program.rows_on_cpu(rows, cols), x, y, rows, cols)
        return
    if cols <= NARROW:
        sizes, shape = program.tiles(rows, cols)
        program.cumsum_narrow(queue, *sizes, x, y, rows, *shape)
        return
    parts, share = program.parts(rows, cols, 4 * WG * program.vec)
    if parts == 1:
        wg = min(WG, -(-(int(cols) + program.vec) // (4 * program.vec * 32)) * 32)
        program.cumsum(queue, (rows * wg,), (wg,), x, y, cols)
        return
    found, count = program.scratch(4 * int(rows) * parts), numpy.int32(parts)
    size = (rows * parts * WG,), (WG,)
    program.cumsum_parts(queue, *size, x, found, cols, share, count)
    program.cumsum_of_parts(queue, *size, x, y, found, cols, share, count)
