import numpy

WG = 256  # knob: 64 128 256 512
KEEP = 32  # knob: 16 32 64
AHEAD = 4  # knob: 2 4 8
NARROW, SLIM = 256, 4

SOURCE = r"""
#include <portkern/rows.h>

#ifndef PORTKERN_CPU
#define KEPT (KEEP / VEC)

// One group per row, which is read once: a work-item has KEEP elements of it in registers, all of
// whose loads are under way at the same time.
kernel void rmsnorm_kept(global const storage_t* restrict x,
                         global const storage_t* restrict weight, global storage_t* restrict y,
                         long cols, float eps) {
  local float scratch[WG];
  const span_t s = row_span(get_group_id(0), cols);
  const int first = get_local_id(0) * VEC, step = get_local_size(0) * VEC;
  const long ahead = s.base - (long)get_group_id(0) * cols;
  vec_t v[KEPT], squares = 0.0f;
  load_span(v, KEPT, x, s, first, step, 0.0f);
#pragma unroll
  for (int k = 0; k < KEPT; ++k) squares += v[k] * v[k];
  const float mean = group_sum(sum_of(squares), scratch) / (float)cols;
  const float scale = 1.0f / sqrt(mean + eps);
#pragma unroll
  for (int k = 0; k < KEPT; ++k) {
    const int at = first + k * step;
    store_span(y, s, at, v[k] * scale * beside(weight, s, ahead, at));
  }
}

inline void write(global const storage_t* restrict x, global const storage_t* restrict weight,
                  global storage_t* restrict y, span_t s, long ahead, float scale) {
  const int step = get_local_size(0) * VEC;
  for (int i = get_local_id(0) * VEC; i < s.high; i += AHEAD * step) {
    vec_t v[AHEAD];
    load_span(v, AHEAD, x, s, i, step, 0.0f);
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) {
      const int at = i + k * step;
      store_span(y, s, at, v[k] * scale * beside(weight, s, ahead, at));
    }
  }
}

// One group per longer row, which is read twice.
kernel void rmsnorm(global const storage_t* restrict x, global const storage_t* restrict weight,
                    global storage_t* restrict y, long cols, float eps) {
  local float scratch[WG];
  const span_t s = row_span(get_group_id(0), cols);
  const float squares = group_sum(span_moment(x, s, 0.0f, true), scratch);
  const long ahead = s.base - (long)get_group_id(0) * cols;
  write(x, weight, y, s, ahead, 1.0f / sqrt(squares / (float)cols + eps));
}

// Several groups per row: what each found of its part, then what all found together.
kernel void rmsnorm_parts(global const storage_t* restrict x, global float* found, long cols,
                          long share, int parts) {
  local float scratch[WG];
  const uint row = (uint)get_group_id(0) / parts, part = (uint)get_group_id(0) % parts;
  const span_t s = part_of(row, cols, share, part);
  const float squares = group_sum(span_moment(x, s, 0.0f, true), scratch);
  if (get_local_id(0) == 0) found[get_group_id(0)] = squares;
}
kernel void rmsnorm_of_parts(global const storage_t* restrict x,
                             global const storage_t* restrict weight,
                             global storage_t* restrict y, global const float* found, long cols,
                             float eps, long share, int parts) {
  local float scratch[WG];
  const uint row = (uint)get_group_id(0) / parts, part = (uint)get_group_id(0) % parts;
  float squares = 0.0f;
  for (int i = get_local_id(0); i < parts; i += get_local_size(0))
    squares += found[(long)row * parts + i];
  squares = group_sum(squares, scratch);
  const span_t s = part_of(row, cols, share, part);
  write(x, weight, y, s, s.base - row * cols, 1.0f / sqrt(squares / (float)cols + eps));
}

// A tile of narrow rows, of which a work-item has at most `most` elements.
inline void narrow(global const storage_t* restrict x, global const storage_t* restrict weight,
                   global storage_t* restrict y, float eps, rows_t b, local uint4* tile,
                   local float* squares, const int most) {
  fill_tile(tile, x, b);
  for (int r = get_local_id(0) / b.lanes; r < b.tall; r += TILE_WG / b.lanes) {
    float v[TILE_MOST], square = 0.0f;
    take_row(v, most, tile, b, r, 0.0f);
#pragma unroll
    for (int j = 0; j < most; ++j) square += v[j] * v[j];
    const float scale = 1.0f / sqrt(lanes_sum(square, b, squares) / (float)b.cols + eps);
#pragma unroll
    for (int j = 0; j < most; ++j)
      v[j] *= scale * LOAD(weight, min(b.lane + j * b.lanes, b.cols - 1));
    put_row(v, most, tile, b, r);
  }
  drain_tile(y, tile, b);
}
kernel void rmsnorm_narrow(global const storage_t* restrict x,
                           global const storage_t* restrict weight, global storage_t* restrict y,
                           float eps, long rows, int cols, int pitch, int lanes, int tall) {
  local uint4 tile[TILE_VECTORS];
  local float squares[TILE_WG];
  const rows_t b = block_of(rows, cols, pitch, lanes, tall);
  if (b.cols <= SLIM) narrow(x, weight, y, eps, b, tile, squares, SLIM);
  else narrow(x, weight, y, eps, b, tile, squares, TILE_MOST);
}

#else
#include <portkern/slim_rows.h>
kernel void rmsnorm_slim_cpu(global const storage_t* x, global const storage_t* weight,
                             global storage_t* y, long rows, long cols, float eps) {
  const slim_t s = {get_global_id(0) * VEC, rows, cols};
  if (s.first >= rows) return;
  vec_t squares = 0.0f;
  for (long j = 0; j < cols; ++j) squares += take_column(x, s, j) * take_column(x, s, j);
  const vec_t scale = 1.0f / sqrt(squares / (float)cols + eps);
  for (long j = 0; j < cols; ++j)
    put_column(y, s, j, take_column(x, s, j) * scale * LOAD(weight, j));
}

#define BLOCK 64  // terms in a chain of additions; the error grows with the number of blocks
#define CHAIN 16  // the same where elements come one by one: few values, so roundings repeat

// On a CPU a work-item has a row.
kernel void rmsnorm_cpu(global const storage_t* x, global const storage_t* weight,
                        global storage_t* y, long rows, long cols, float eps) {
  const long row = get_global_id(0), start = row * cols, whole = cols / VEC * VEC;
  if (row >= rows) return;
  vec_t squares = 0.0f;
  float square = 0.0f;
  for (long i = 0; i < whole;) {
    vec_t part = 0.0f;
    for (int k = 0; k < BLOCK && i < whole; ++k, i += VEC) {
      const vec_t v = LOADV(x, start + i);
      part += v * v;
    }
    squares += part;
  }
  for (long i = whole; i < cols;) {
    float part = 0.0f;
    for (int k = 0; k < CHAIN && i < cols; ++k, ++i) {
      const float v = LOAD(x, start + i);
      part += v * v;
    }
    square += part;
  }
  square += sum_of(squares);
  const float scale = 1.0f / sqrt(square / (float)cols + eps);
  for (long i = 0; i < whole; i += VEC)
    STOREV(y, start + i, LOADV(x, start + i) * scale * LOADV(weight, i));
  for (long i = whole; i < cols; ++i)
    STORE(y, start + i, LOAD(x, start + i) * scale * LOAD(weight, i));
}
#endif
"""


def rmsnorm(queue, program, x, weight, y, *, rows, cols, eps):
    if rows == 0 or cols == 0:
        return
    if program.cpu:
        queue = program.nearby(queue, 2 * rows * cols)
        if cols < program.vec:
            size = program.rows_on_cpu(-(-rows // program.vec), program.vec * cols)
            program.rmsnorm_slim_cpu(queue, *size, x, weight, y, rows, cols, eps)
            return
        size = program.rows_on_cpu(rows, cols)
        program.rmsnorm_cpu(queue, *size, x, weight, y, rows, cols, eps)
        return
    if cols <= NARROW:
        sizes, shape = program.tiles(rows, cols)
        program.rmsnorm_narrow(queue, *sizes, x, weight, y, eps, rows, *shape)
        return
    reach = int(cols) + program.vec - 1
    if reach <= KEEP * WG:
        wg = -(-reach // (KEEP * 32)) * 32  # no more than it takes: short rows are many groups
        program.rmsnorm_kept(queue, (rows * wg,), (wg,), x, weight, y, cols, eps)
        return
    parts, share = program.parts(rows, cols, AHEAD * WG * program.vec)
    size = (rows * parts * WG,), (WG,)
    if parts == 1:
        program.rmsnorm(queue, *size, x, weight, y, cols, eps)
        return
    found, count = program.scratch(4 * int(rows) * parts), numpy.int32(parts)
    program.rmsnorm_parts(queue, *size, x, found, cols, share, count)
    program.rmsnorm_of_parts(queue, *size, x, weight, y, found, cols, eps, share, count)
