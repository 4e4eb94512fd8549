import numpy

WG = 256  # knob: 64 128 256 512
KEEP = 32  # knob: 16 32 64
AHEAD = 4  # knob: 2 4 8
NARROW, SLIM = 256, 4

SOURCE = r"""
#include <portkern/rows.h>

#ifndef PORTKERN_CPU
#define KEPT (KEEP / VEC)

typedef struct {
  global const storage_t *weight, *bias;
  float mean, scale;
} normal_t;

inline vec_t normal(normal_t n, span_t s, long ahead, int at, vec_t v) {
  return (v - n.mean) * n.scale * beside(n.weight, s, ahead, at) + beside(n.bias, s, ahead, at);
}

// One group per row, which is read once: a work-item has KEEP elements of it in registers, all of
// whose loads are under way at the same time.
kernel void layernorm_kept(global const storage_t* restrict x,
                           global const storage_t* restrict weight,
                           global const storage_t* restrict bias, global storage_t* restrict y,
                           long cols, float eps) {
  local float scratch[WG];
  const long start = (long)get_group_id(0) * cols;
  const span_t s = row_span(get_group_id(0), cols);
  const int from = get_local_id(0) * VEC, step = get_local_size(0) * VEC;
  // Shifted by one of its elements, a row's sum keeps the digits in which they differ.
  const float first = LOAD(x, start);
  vec_t v[KEPT], sums = 0.0f, squares = 0.0f;
  load_span(v, KEPT, x, s, from, step, first);
#pragma unroll
  for (int k = 0; k < KEPT; ++k) sums += v[k] - first;
  const float mean = first + group_sum(sum_of(sums), scratch) / (float)cols;
  mask_span(v, KEPT, s, from, step, mean);
#pragma unroll
  for (int k = 0; k < KEPT; ++k) squares += (v[k] - mean) * (v[k] - mean);
  const float variance = group_sum(sum_of(squares), scratch) / (float)cols;
  const normal_t n = {weight, bias, mean, 1.0f / sqrt(variance + eps)};
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int at = from + k * step;
    store_span(y, s, at, normal(n, s, s.base - start, at, v[k]));
  }
}

// Of a span: the mean and the sum of the squares of what differs from it. E[x^2] - E[x]^2 would
// lose every digit where the mean is large.
inline float2 moments(global const storage_t* x, span_t s, float first, local float* scratch) {
  const float count = max(s.high - s.low, 1);
  const float mean = first + group_sum(span_moment(x, s, first, false), scratch) / count;
  return (float2)(mean, group_sum(span_moment(x, s, mean, true), scratch));
}

inline void write(global const storage_t* restrict x, global storage_t* restrict y, span_t s,
                  long ahead, normal_t n) {
  const int step = get_local_size(0) * VEC;
  for (int i = get_local_id(0) * VEC; i < s.high; i += AHEAD * step) {
    vec_t v[AHEAD];
    load_span(v, AHEAD, x, s, i, step, 0.0f);
#pragma unroll
    for (int k = 0; k < AHEAD; ++k)
      store_span(y, s, i + k * step, normal(n, s, ahead, i + k * step, v[k]));
  }
}

// One group per longer row.
kernel void layernorm(global const storage_t* restrict x, global const storage_t* restrict weight,
                      global const storage_t* restrict bias, global storage_t* restrict y,
                      long cols, float eps) {
  local float scratch[WG];
  const long start = (long)get_group_id(0) * cols;
  const span_t s = row_span(get_group_id(0), cols);
  const float2 m = moments(x, s, LOAD(x, start), scratch);
  const normal_t n = {weight, bias, m.x, 1.0f / sqrt(m.y / (float)cols + eps)};
  write(x, y, s, s.base - start, n);
}

// Several groups per row: what each found of its part, then what all found together.
kernel void layernorm_parts(global const storage_t* restrict x, global float2* found, long cols,
                            long share, int parts) {
  local float scratch[WG];
  const uint row = (uint)get_group_id(0) / parts, part = (uint)get_group_id(0) % parts;
  const span_t s = part_of(row, cols, share, part);
  const float2 m = moments(x, s, LOAD(x, row * cols), scratch);
  if (get_local_id(0) == 0) found[get_group_id(0)] = m;
}
kernel void layernorm_of_parts(global const storage_t* restrict x,
                               global const storage_t* restrict weight,
                               global const storage_t* restrict bias, global storage_t* restrict y,
                               global const float2* found, long cols, float eps, long share,
                               int parts) {
  local float scratch[WG];
  const uint row = (uint)get_group_id(0) / parts, part = (uint)get_group_id(0) % parts;
  const int me = get_local_id(0), size = get_local_size(0);
  const float first = LOAD(x, row * cols);
  found += (long)row * parts;
  float sum = 0.0f, squares = 0.0f;
  for (int i = me; i < parts; i += size) {
    const span_t s = part_of(row, cols, share, i);
    sum += (found[i].x - first) * (float)(s.high - s.low);
  }
  const float mean = first + group_sum(sum, scratch) / (float)cols;
  for (int i = me; i < parts; i += size) {
    const span_t s = part_of(row, cols, share, i);
    const float off = found[i].x - mean;
    squares += found[i].y + off * off * (float)(s.high - s.low);
  }
  const float variance = group_sum(squares, scratch) / (float)cols;
  const normal_t n = {weight, bias, mean, 1.0f / sqrt(variance + eps)};
  const span_t s = part_of(row, cols, share, part);
  write(x, y, s, s.base - row * cols, n);
}

// A tile of narrow rows, of which a work-item has at most `most` elements.
inline void narrow(global const storage_t* restrict x, global const storage_t* restrict weight,
                   global const storage_t* restrict bias, global storage_t* restrict y, float eps,
                   rows_t b, local uint4* tile, local float* sums, local float* squares,
                   const int most) {
  fill_tile(tile, x, b);
  for (int r = get_local_id(0) / b.lanes; r < b.tall; r += TILE_WG / b.lanes) {
    const float first = TILE_LOAD((local const raw_t*)tile, min(r, b.rows - 1) * b.pitch);
    float v[TILE_MOST], sum = 0.0f, square = 0.0f;
    take_row(v, most, tile, b, r, first);
#pragma unroll
    for (int j = 0; j < most; ++j) sum += v[j] - first;
    const float mean = first + lanes_sum(sum, b, sums) / (float)b.cols;
#pragma unroll
    for (int j = 0; j < most; ++j) {
      v[j] = b.lane + j * b.lanes < b.cols ? v[j] - mean : 0.0f;
      square += v[j] * v[j];
    }
    const float scale = 1.0f / sqrt(lanes_sum(square, b, squares) / (float)b.cols + eps);
#pragma unroll
    for (int j = 0; j < most; ++j) {
      const int i = min(b.lane + j * b.lanes, b.cols - 1);
      v[j] = v[j] * scale * LOAD(weight, i) + LOAD(bias, i);
    }
    put_row(v, most, tile, b, r);
  }
  drain_tile(y, tile, b);
}
kernel void layernorm_narrow(global const storage_t* restrict x,
                             global const storage_t* restrict weight,
                             global const storage_t* restrict bias, global storage_t* restrict y,
                             float eps, long rows, int cols, int pitch, int lanes, int tall) {
  local uint4 tile[TILE_VECTORS];
  local float sums[TILE_WG], squares[TILE_WG];
  const rows_t b = block_of(rows, cols, pitch, lanes, tall);
  if (b.cols <= SLIM) narrow(x, weight, bias, y, eps, b, tile, sums, squares, SLIM);
  else narrow(x, weight, bias, y, eps, b, tile, sums, squares, TILE_MOST);
}

#else
#include <portkern/slim_rows.h>
kernel void layernorm_slim_cpu(global const storage_t* x, global const storage_t* weight,
                               global const storage_t* bias, global storage_t* y, long rows,
                               long cols, float eps) {
  const slim_t s = {get_global_id(0) * VEC, rows, cols};
  if (s.first >= rows) return;
  const vec_t first = take_column(x, s, 0);
  vec_t sum = 0.0f, squares = 0.0f;
  for (long j = 1; j < cols; ++j) sum += take_column(x, s, j) - first;
  const vec_t mean = first + sum / (float)cols;
  for (long j = 0; j < cols; ++j) {
    const vec_t off = take_column(x, s, j) - mean;
    squares += off * off;
  }
  const vec_t scale = 1.0f / sqrt(squares / (float)cols + eps);
  for (long j = 0; j < cols; ++j)
    put_column(y, s, j, (take_column(x, s, j) - mean) * scale * LOAD(weight, j) + LOAD(bias, j));
}

#define BLOCK 64  // terms in a chain of additions; the error grows with the number of blocks
#define CHAIN 16  // the same where elements come one by one: few values, so roundings repeat

// The sums of x - shift and of its square, over a row. E[x^2] - E[x]^2 would lose every digit where
// the mean is large, so the variance takes a pass of its own, with the mean as its shift.
inline float moment(global const storage_t* x, long start, long cols, float shift, bool square) {
  const long whole = cols / VEC * VEC;
  vec_t sums = 0.0f;
  float sum = 0.0f;
  for (long i = 0; i < whole;) {
    vec_t part = 0.0f;
    for (int k = 0; k < BLOCK && i < whole; ++k, i += VEC) {
      const vec_t v = LOADV(x, start + i) - shift;
      part += square ? v * v : v;
    }
    sums += part;
  }
  for (long i = whole; i < cols;) {
    float part = 0.0f;
    for (int k = 0; k < CHAIN && i < cols; ++k, ++i) {
      const float v = LOAD(x, start + i) - shift;
      part += square ? v * v : v;
    }
    sum += part;
  }
  return sum + sum_of(sums);
}

// On a CPU a work-item has a row.
kernel void layernorm_cpu(global const storage_t* x, global const storage_t* weight,
                          global const storage_t* bias, global storage_t* y, long rows,
                          long cols, float eps) {
  const long row = get_global_id(0), start = row * cols, whole = cols / VEC * VEC;
  if (row >= rows) return;
  // Shifted by one of its elements, a row's sum keeps the digits in which they differ.
  const float first = LOAD(x, start);
  const float mean = first + moment(x, start, cols, first, false) / (float)cols;
  const float variance = moment(x, start, cols, mean, true) / (float)cols;
  const float scale = 1.0f / sqrt(variance + eps);
  for (long i = 0; i < whole; i += VEC)
    STOREV(y, start + i, (LOADV(x, start + i) - mean) * scale * LOADV(weight, i) + LOADV(bias, i));
  for (long i = whole; i < cols; ++i)
    STORE(y, start + i, (LOAD(x, start + i) - mean) * scale * LOAD(weight, i) + LOAD(bias, i));
}
#endif
"""


def layernorm(queue, program, x, weight, bias, y, *, rows, cols, eps):
    if rows == 0 or cols == 0:
        return
    if program.cpu:
        queue = program.nearby(queue, 2 * rows * cols)
        if cols < program.vec:
            size = program.rows_on_cpu(-(-rows // program.vec), program.vec * cols)
            program.layernorm_slim_cpu(queue, *size, x, weight, bias, y, rows, cols, eps)
            return
        size = program.rows_on_cpu(rows, cols)
        program.layernorm_cpu(queue, *size, x, weight, bias, y, rows, cols, eps)
        return
    if cols <= NARROW:
        sizes, shape = program.tiles(rows, cols)
        program.layernorm_narrow(queue, *sizes, x, weight, bias, y, eps, rows, *shape)
        return
    reach = int(cols) + program.vec - 1
    if reach <= KEEP * WG:
        wg = -(-reach // (KEEP * 32)) * 32  # no more than it takes: short rows are many groups
        program.layernorm_kept(queue, (rows * wg,), (wg,), x, weight, bias, y, cols, eps)
        return
    parts, share = program.parts(rows, cols, AHEAD * WG * program.vec)
    size = (rows * parts * WG,), (WG,)
    if parts == 1:
        program.layernorm(queue, *size, x, weight, bias, y, cols, eps)
        return
    found, count = program.scratch(8 * int(rows) * parts), numpy.int32(parts)
    program.layernorm_parts(queue, *size, x, found, cols, share, count)
    program.layernorm_of_parts(queue, *size, x, weight, bias, y, found, cols, eps, share, count)
