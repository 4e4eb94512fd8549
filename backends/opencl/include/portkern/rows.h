// Rows as a GPU's groups take them. Of a wide row a group has a span, in vectors of memory wherever the
// row begins, or a part of it (`program.parts`); of narrow rows it has a tile (`program.tiles`). A
// buffer's last elements are read as a whole vector: buffers end at a multiple of 16 bytes.

// An element that is moved, not converted.
#ifdef PORTKERN_FLOAT32
typedef uint raw_t;
#else
typedef ushort raw_t;
#endif

#ifndef PORTKERN_CPU

// ---- Wide rows

// A row, or a group's part of it: elements base + low to base + high, where base is a multiple of
// VEC. `last` is where its last vector begins.
typedef struct { long base; int low, high, last; } span_t;

// Part `part`, of `share` elements, of row `row`. What a part is counted from may lie before the row.
inline span_t part_of(long row, long cols, long share, int part) {
  const long start = row * cols, skip = start % VEC, ahead = part * share;
  span_t s;
  s.base = start - skip + ahead;
  s.low = part == 0 ? skip : 0;
  s.high = max(min(share, skip + cols - ahead), 0l);
  s.last = max(s.high - 1, 0) / VEC * VEC;
  if (s.high == 0) s.base = start - skip;  // nothing, but what it loads is there
  return s;
}
inline span_t row_span(long row, long cols) { return part_of(row, cols, cols + VEC, 0); }

// `count` vectors, `step` elements apart: `fill` for what is not the span's.
inline void mask_span(vec_t* v, const int count, span_t s, int at, int step, float fill) {
#pragma unroll
  for (int k = 0; k < count; ++k) {
    const int i = at + k * step;
    if (i >= s.low && i + VEC <= s.high) continue;
#pragma unroll
    for (int j = 0; j < VEC; ++j)
      ((float*)&v[k])[j] = i + j >= s.low && i + j < s.high ? ((float*)&v[k])[j] : fill;
  }
}

// The same, read. Loads have no conditions, so that they are under way together: a buffer's last
// vector is whole (ClDevice.upload).
inline void load_span(vec_t* v, const int count, global const storage_t* x, span_t s, int at,
                      int step, float fill) {
#pragma unroll
  for (int k = 0; k < count; ++k) v[k] = LOADV(x, s.base + min(at + k * step, s.last));
  mask_span(v, count, s, at, step, fill);
}
inline void store_span(global storage_t* y, span_t s, int at, vec_t v) {
  if (at >= s.low && at + VEC <= s.high) {
    STOREV(y, s.base + at, v);
    return;
  }
#pragma unroll
  for (int j = 0; j < VEC; ++j)
    if (at + j >= s.low && at + j < s.high) STORE(y, s.base + at + j, ((float*)&v)[j]);
}

// Of what all rows have in common, a weight or a bias, what belongs to a span's vector at `at`, where
// column `ahead` belongs to the vector at 0.
inline vec_t beside(global const storage_t* common, span_t s, long ahead, int at) {
  if (VECTORS(ahead)) return LOADV(common, ahead + min(at, s.last));
  vec_t v;
#pragma unroll
  for (int j = 0; j < VEC; ++j)
    ((float*)&v)[j] = LOAD(common, ahead + clamp(at + j, s.low, s.high - 1));
  return v;
}

// The sum of a work-item's elements of a span, or of their squares, less `shift`.
#define SPAN_AHEAD (32 / VEC)
#define SPAN_BLOCK 64  // terms in a chain of additions; the error grows with the number of blocks

inline float span_moment(global const storage_t* x, span_t s, float shift, const bool square) {
  const int step = get_local_size(0) * VEC;
  vec_t sums = 0.0f;
  for (int i = get_local_id(0) * VEC; i < s.high;) {
    vec_t part = 0.0f;
    for (int b = 0; b < SPAN_BLOCK && i < s.high; b += SPAN_AHEAD, i += SPAN_AHEAD * step) {
      vec_t v[SPAN_AHEAD];
      load_span(v, SPAN_AHEAD, x, s, i, step, shift);
#pragma unroll
      for (int k = 0; k < SPAN_AHEAD; ++k) {
        v[k] -= shift;
        part += square ? v[k] * v[k] : v[k];
      }
    }
    sums += part;
  }
  return sum_of(sums);
}

// The largest element of a span and the sum of the powers below it, which shrinks when a larger one
// comes; each work-item has its own.
typedef struct { float top, sum; } powers_t;
#define POWERS_AHEAD 4

inline powers_t span_powers(global const storage_t* x, span_t s) {
  const int step = get_local_size(0) * VEC;
  vec_t tops = -FLT_MAX, sums = 0.0f;  // the difference of two infinities would be NaN
  for (int i = get_local_id(0) * VEC; i < s.high; i += POWERS_AHEAD * step) {
    vec_t v[POWERS_AHEAD], higher = tops, part = 0.0f;
    load_span(v, POWERS_AHEAD, x, s, i, step, -INFINITY);
#pragma unroll
    for (int k = 0; k < POWERS_AHEAD; ++k) higher = v[k] > higher ? v[k] : higher;
#pragma unroll
    for (int k = 0; k < POWERS_AHEAD; ++k) part += EXPV(v[k] - higher);
    sums = sums * EXPV(tops - higher) + part;
    tops = higher;
  }
  powers_t p;
  p.top = max_of(tops);
  p.sum = sum_of(sums * EXPV(tops - p.top));
  return p;
}

// Of all work-items together.
inline powers_t group_powers(powers_t mine, local float* scratch) {
  powers_t p;
  p.top = group_max(mine.top, scratch);
  p.sum = group_sum(mine.sum * exp(mine.top - p.top), scratch);
  return p;
}

// Of what groups found in the parts of a row, what a work-item has.
inline powers_t found_powers(global const powers_t* found, int parts) {
  powers_t p = {-FLT_MAX, 0.0f};
  for (int i = get_local_id(0); i < parts; i += get_local_size(0)) {
    const float higher = found[i].top > p.top ? found[i].top : p.top;
    p.sum = p.sum * exp(p.top - higher) + found[i].sum * exp(found[i].top - higher);
    p.top = higher;
  }
  return p;
}

// ---- Narrow rows

#define TILE_WG 128
#define TILE_MOST 16  // elements of a row that a work-item has at most, in registers
#define TILE_VECTORS (24 * TILE_WG * (int)sizeof(storage_t) / 16)  // of uint4

// A group's rows, from `first` on, lie in the tile as in memory, or a vector apart (`pitch`) where they
// would all begin in the same banks. `lanes` neighbours share a row and have its elements in turns;
// where one alone has a row it has several, `TILE_WG / lanes` apart.
typedef struct { long first; int rows, tall, cols, pitch, lanes, lane; } rows_t;

inline rows_t block_of(long rows, int cols, int pitch, int lanes, int tall) {
  const long first = (long)get_group_id(0) * tall;
  rows_t b = {first, (int)min((long)tall, rows - first), tall, cols, pitch, lanes,
               (int)get_local_id(0) & (lanes - 1)};
  return b;
}
inline int tile_slot(int vector, rows_t b) {
  return b.pitch == b.cols ? vector : vector + (uint)vector / (uint)(b.cols / VEC);
}

// By all work-items, whole vectors of memory: a block begins with one. No rest without one pitch.
inline void fill_tile(local uint4* tile, global const storage_t* x, rows_t b) {
  const int count = b.rows * b.cols, vectors = count / VEC, me = get_local_id(0);
  global const uint4* from = (global const uint4*)(x + b.first * b.cols);
  for (int i = me; i < vectors; i += 4 * TILE_WG) {
    uint4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = from[min(i + k * TILE_WG, vectors - 1)];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (i + k * TILE_WG < vectors) tile[tile_slot(i + k * TILE_WG, b)] = v[k];
  }
  for (int i = vectors * VEC + me; i < count; i += TILE_WG)
    ((local raw_t*)tile)[i] = ((global const raw_t*)x)[b.first * b.cols + i];
  barrier(CLK_LOCAL_MEM_FENCE);
}
inline void drain_tile(global storage_t* y, local const uint4* tile, rows_t b) {
  const int count = b.rows * b.cols, vectors = count / VEC, me = get_local_id(0);
  global uint4* to = (global uint4*)(y + b.first * b.cols);
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 4
  for (int i = me; i < vectors; i += TILE_WG) to[i] = tile[tile_slot(i, b)];
  for (int i = vectors * VEC + me; i < count; i += TILE_WG)
    ((global raw_t*)y)[b.first * b.cols + i] = ((local const raw_t*)tile)[i];
}

#if defined(PORTKERN_FLOAT32)
inline float TILE_LOAD(local const raw_t* p, int i) { return as_float(p[i]); }
inline void TILE_STORE(local raw_t* p, int i, float v) { p[i] = as_uint(v); }
#elif defined(PORTKERN_FLOAT16)
inline float TILE_LOAD(local const raw_t* p, int i) { return vload_half(i, (local const half*)p); }
inline void TILE_STORE(local raw_t* p, int i, float v) { vstore_half_rte(v, i, (local half*)p); }
#else
inline float TILE_LOAD(local const raw_t* p, int i) { return as_float((uint)p[i] << 16); }
inline void TILE_STORE(local raw_t* p, int i, float v) { p[i] = to_bfloat16(v); }
#endif

// The elements of row `r` of the block that are a work-item's, of which there are at most `most`, with
// `fill` beyond its end. There may be no such row: then those of another.
inline void take_row(float* v, const int most, local const uint4* tile, rows_t b, int r,
                     float fill) {
  local const raw_t* row = (local const raw_t*)tile + min(r, b.rows - 1) * b.pitch;
#pragma unroll
  for (int j = 0; j < most; ++j) {
    const int i = b.lane + j * b.lanes;
    v[j] = i < b.cols ? TILE_LOAD(row, i) : fill;
  }
}
inline void put_row(const float* v, const int most, local uint4* tile, rows_t b, int r) {
  local raw_t* row = (local raw_t*)tile + r * b.pitch;
#pragma unroll
  for (int j = 0; j < most; ++j) {
    const int i = b.lane + j * b.lanes;
    if (r < b.rows && i < b.cols) TILE_STORE(row, i, v[j]);
  }
}

// Over the lanes of a row. `parts` has TILE_WG elements and is this call's own: a group makes it once,
// as lanes that share a row have no other.
inline float lanes_sum(float v, rows_t b, local float* parts) {
  if (b.lanes == 1) return v;
  const int me = get_local_id(0);
  parts[me] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  v = 0.0f;
  for (int i = 0; i < b.lanes; ++i) v += parts[me - b.lane + i];
  return v;
}
inline float lanes_max(float v, rows_t b, local float* parts) {
  if (b.lanes == 1) return v;
  const int me = get_local_id(0);
  parts[me] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = 0; i < b.lanes; ++i) v = fmax(v, parts[me - b.lane + i]);
  return v;
}
#endif
