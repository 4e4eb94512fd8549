import numpy

WG = 256  # knob: 64 128 256 512
KEEP = 16  # knob: 16 32 64
NARROW, SLIM = 256, 4

SOURCE = r"""
#include <portkern/rows.h>

#ifndef PORTKERN_CPU
// The difference of the logits first: they may be large where the loss is not.
inline float loss_of(powers_t p, float logit) { return (p.top - logit) + log(p.sum); }

// One group per row, which is read once.
kernel void cross_entropy(global const storage_t* restrict logits, global const long* target,
                          global storage_t* restrict loss, long classes) {
  local float scratch[WG];
  const long row = get_group_id(0);
  const powers_t p = group_powers(span_powers(logits, row_span(row, classes)), scratch);
  if (get_local_id(0) == 0)
    STORE(loss, row, loss_of(p, LOAD(logits, row * classes + target[row])));
}

// Several groups per row: what each found of its part, then what all found together.
kernel void cross_entropy_parts(global const storage_t* restrict logits, global powers_t* found,
                                long classes, long share, int parts) {
  local float scratch[WG];
  const uint row = (uint)get_group_id(0) / parts, part = (uint)get_group_id(0) % parts;
  const span_t s = part_of(row, classes, share, part);
  const powers_t p = group_powers(span_powers(logits, s), scratch);
  if (get_local_id(0) == 0) found[get_group_id(0)] = p;
}
kernel void cross_entropy_of_parts(global const storage_t* restrict logits,
                                   global const long* target, global storage_t* restrict loss,
                                   global const powers_t* found, long classes, int parts) {
  local float scratch[WG];
  const long row = get_group_id(0);
  const powers_t p = group_powers(found_powers(found + row * parts, parts), scratch);
  if (get_local_id(0) == 0)
    STORE(loss, row, loss_of(p, LOAD(logits, row * classes + target[row])));
}

// A tile of narrow rows, of which a work-item has at most `most` elements.
inline void narrow(global const storage_t* restrict logits, global const long* target,
                   global storage_t* restrict loss, rows_t b, local uint4* tile, local float* tops,
                   local float* sums, const int most) {
  fill_tile(tile, logits, b);
  for (int r = get_local_id(0) / b.lanes; r < b.tall; r += TILE_WG / b.lanes) {
    float v[TILE_MOST];
    powers_t p = {-FLT_MAX, 0.0f};
    take_row(v, most, tile, b, r, -INFINITY);
#pragma unroll
    for (int j = 0; j < most; ++j) p.top = v[j] > p.top ? v[j] : p.top;
    p.top = lanes_max(p.top, b, tops);
#pragma unroll
    for (int j = 0; j < most; ++j)
      if (b.lane + j * b.lanes < b.cols) p.sum += exp(v[j] - p.top);
    p.sum = lanes_sum(p.sum, b, sums);
    if (b.lane > 0 || r >= b.rows) continue;
    const int at = r * b.pitch + (int)target[b.first + r];
    STORE(loss, b.first + r, loss_of(p, TILE_LOAD((local const raw_t*)tile, at)));
  }
}
kernel void cross_entropy_narrow(global const storage_t* restrict logits,
                                 global const long* target, global storage_t* restrict loss,
                                 long rows, int classes, int pitch, int lanes, int tall) {
  local uint4 tile[TILE_VECTORS];
  local float tops[TILE_WG], sums[TILE_WG];
  const rows_t b = block_of(rows, classes, pitch, lanes, tall);
  if (b.cols <= SLIM) narrow(logits, target, loss, b, tile, tops, sums, SLIM);
  else narrow(logits, target, loss, b, tile, tops, sums, TILE_MOST);
}

#else
#include <portkern/slim_rows.h>
kernel void cross_entropy_slim_cpu(global const storage_t* logits, global const long* target,
                                   global storage_t* loss, long rows, long classes) {
  const slim_t s = {get_global_id(0) * VEC, rows, classes};
  if (s.first >= rows) return;
  vec_t v[VEC], top = -FLT_MAX, sum = 0.0f;
  for (int j = 0; j < classes; ++j) {
    v[j] = take_column(logits, s, j);
    top = v[j] > top ? v[j] : top;
  }
  for (int j = 0; j < classes; ++j) sum += EXPV(v[j] - top);
  for (int l = 0; l < VEC && s.first + l < rows; ++l) {
    const float logit = ((float*)&v[target[s.first + l]])[l];
    STORE(loss, s.first + l, (((float*)&top)[l] - logit) + log(((float*)&sum)[l]));
  }
}

#define BLOCK 2048

// On a CPU a work-item does a row. Of each block, which stays in the nearest cache, it first finds
// the largest, then it adds the powers. The rest of a row is apart: loops without branches keep
// their constants in registers.
kernel void cross_entropy_cpu(global const storage_t* logits, global const long* target,
                              global storage_t* loss, long rows, long classes) {
  const long row = get_global_id(0), start = row * classes, whole = classes / VEC * VEC;
  if (row >= rows) return;
  const vec_t rest = LOADROW(logits, start, whole, classes, -INFINITY);
  vec_t tops = rest > -FLT_MAX ? rest : (vec_t)(-FLT_MAX);
  float top = max_of(tops), sum = sum_of(EXPV(rest - top));
  for (long first = 0; first < whole; first += BLOCK) {
    const long last = first + BLOCK < whole ? first + BLOCK : whole;
    vec_t sums = 0.0f;
    for (long i = first; i < last; i += VEC) {
      const vec_t v = LOADV(logits, start + i);
      tops = v > tops ? v : tops;
    }
    const float higher = max_of(tops);
    for (long i = first; i < last; i += VEC) sums += EXPV(LOADV(logits, start + i) - higher);
    sum = sum * exp(top - higher) + sum_of(sums);
    top = higher;
  }
  // The difference of the logits first: they may be large where the loss is not.
  STORE(loss, row, (top - LOAD(logits, start + target[row])) + log(sum));
}
#endif
"""


def cross_entropy(queue, program, logits, target, loss, *, rows, classes):
    if rows == 0 or classes == 0:
        return
    if program.cpu:
        queue = program.nearby(queue, 4 * rows * classes)
        if classes <= program.vec:
            size = program.rows_on_cpu(-(-rows // program.vec), program.vec * classes)
            program.cross_entropy_slim_cpu(queue, *size, logits, target, loss, rows, classes)
            return
        size = program.rows_on_cpu(rows, classes)
        program.cross_entropy_cpu(queue, *size, logits, target, loss, rows, classes)
        return
    if classes <= NARROW:
        sizes, shape = program.tiles(rows, classes)
        program.cross_entropy_narrow(queue, *sizes, logits, target, loss, rows, *shape)
        return
    parts, share = program.parts(rows, classes, KEEP * WG)
    if parts == 1:
        wg = min(WG, -(-int(classes) // (KEEP * 32)) * 32)
        program.cross_entropy(queue, (rows * wg,), (wg,), logits, target, loss, classes)
        return
    found, count = program.scratch(8 * int(rows) * parts), numpy.int32(parts)
    size = (rows * parts * WG,), (WG,)
    program.cross_entropy_parts(queue, *size, logits, found, classes, share, count)
    size = (rows * 64,), (64,)
    program.cross_entropy_of_parts(queue, *size, logits, target, loss, found, classes, count)
