import numpy

WG = 256  # knob: 64 128 256
ROOM = 512  # knob: 512 1024
AHEAD = 4  # knob: 2 4 8
NARROW, SPLIT = 128, 256

SOURCE = r"""
#include <portkern/rows.h>

// As unsigned numbers floats keep their order: zeros of both signs are equal, a NaN is the largest.
inline uint ordered(float v) {
  const uint u = as_uint(v), sign = 0x80000000u;
  if (v != v) return 0xfffffffeu;
  return u << 1 == 0 ? sign : u & sign ? ~u : u | sign;
}

// The larger value, and of equal ones the lower index, has the larger key: no two are equal.
inline ulong key_of(float v, long i) { return (ulong)ordered(v) << 32 | ~(uint)i; }

#ifndef PORTKERN_CPU
#define BATCH 16  // keys of a work-item at once

// What a group selects from: a span of a row, or keys that other groups have selected.
typedef struct {
  global const storage_t* x;
  span_t span;
  long ahead;  // column of the span's vector at 0
  global const ulong* keys;
  int count;
} source_t;

// Batch `b` of a work-item: 0, less than any key, beyond the end.
inline void take(source_t s, const bool raw, int b, ulong* keys) {
  const int me = get_local_id(0), size = get_local_size(0);
  const int at = (b * (BATCH / VEC) * size + me) * VEC, step = size * VEC;
  vec_t v[BATCH / VEC];
  if (raw) load_span(v, BATCH / VEC, s.x, s.span, at, step, 0.0f);
#pragma unroll
  for (int j = 0; j < BATCH; ++j) {
    const int i = raw ? at + j / VEC * step + j % VEC : (b * BATCH + j) * size + me;
    if (raw)
      keys[j] = i >= s.span.low && i < s.span.high
                    ? key_of(((float*)&v[j / VEC])[j % VEC], s.ahead + i) : 0;
    else keys[j] = i < s.count ? s.keys[i] : 0;
  }
}

// Each work-item finds the largest key of its share; the k-th largest of these is a bound that at
// least k keys reach, and of random ones hardly more. They are listed, and each goes to the place
// that is the number of larger ones: to `best` where given, else with its value to the result. If
// the list is too short, it takes fewer, and another round goes on below the bound.
inline void best_of(source_t s, const bool raw, int k, global const storage_t* row,
                   global storage_t* values, global long* indices, global ulong* best,
                   local ulong* list, local ulong* bound, local int* count) {
  const int me = get_local_id(0), size = get_local_size(0);
  const int batches = ((raw ? s.span.high : s.count) + BATCH * size - 1) / (BATCH * size);
  ulong below = ULONG_MAX;
  for (int done = 0; done < k;) {
    ulong keys[BATCH], top = 0;
    for (int b = 0; b < batches; ++b) {
      take(s, raw, b, keys);
#pragma unroll
      for (int j = 0; j < BATCH; ++j) top = keys[j] < below ? max(top, keys[j]) : top;
    }
    list[me] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
    int larger = 0;
    for (int j = 0; j < size; ++j) larger += list[j] > top;
    int found = ROOM + 1;
    for (int want = min(k - done, size / 2); found > ROOM; want /= 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      if (me == 0) {
        *bound = 1;
        *count = 0;
      }
      barrier(CLK_LOCAL_MEM_FENCE);
      if (larger == want - 1 && top > 0) *bound = top;
      barrier(CLK_LOCAL_MEM_FENCE);
      const ulong least = *bound;
      for (int b = 0; b < batches && top >= least; ++b) {  // it may have none to list
        take(s, raw, b, keys);
#pragma unroll
        for (int j = 0; j < BATCH; ++j) {
          if (keys[j] - least >= below - least) continue;  // least <= key < below otherwise
          const int slot = atomic_inc(count);
          if (slot < ROOM) list[slot] = keys[j];
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE);
      found = *count;
    }
    for (int e = me; e < found; e += size) {
      int place = done;
      for (int j = 0; j < found; ++j) place += list[j] > list[e];
      if (place >= k) continue;
      const uint i = ~(uint)list[e];
      if (best) {
        best[place] = list[e];
        continue;
      }
      STORE(values, place, LOAD(row, i));
      indices[place] = i;
    }
    done += found;
    below = *bound;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

// One group per row, or several: then the keys of each part's best go to `best`.
kernel void topk(global const storage_t* x, global storage_t* values, global long* indices,
                 global ulong* best, long cols, long k, long share, int parts) {
  local ulong list[ROOM], bound;
  local int count;
  const uint group = get_group_id(0), row = group / parts;
  const span_t span = part_of(row, cols, share, group % parts);
  const source_t s = {x, span, span.base - row * cols, 0, 0};
  best_of(s, true, k, x + row * cols, values + row * k, indices + row * k,
          parts > 1 ? best + group * k : 0, list, &bound, &count);
}
kernel void topk_of_parts(global const storage_t* x, global storage_t* values,
                          global long* indices, global const ulong* best, long cols, long k,
                          int parts) {
  local ulong list[ROOM], bound;
  local int count;
  const long row = get_group_id(0);
  const span_t none = {0, 0, 0, 0};
  const source_t s = {x, none, 0, best + row * parts * k, parts * (int)k};
  best_of(s, false, k, x + row * cols, values + row * k, indices + row * k, 0, list, &bound,
          &count);
}

// Narrow rows: a work-item has an element and finds its place. Keys of halves are short: what
// their floats have in the last 13 bits does not distinguish them, and 7 are enough for a column.
#ifdef PORTKERN_FLOAT32
typedef ulong short_t;
inline short_t short_key(float v, int column) { return key_of(v, column); }
#else
typedef uint short_t;
inline short_t short_key(float v, int column) {
  return (ordered(v) & ~0x1fffu) | (uint)(NARROW - 1 - column);
}
#endif

kernel void topk_narrow(global const storage_t* restrict x, global storage_t* restrict values,
                        global long* restrict indices, long rows, int cols, int k, int lanes) {
  local short_t keys[WG];
  const int me = get_local_id(0), column = me & (lanes - 1);
  const long row = (long)get_group_id(0) * (WG / lanes) + me / lanes;
  const long from = min(row, rows - 1) * cols + min(column, cols - 1);
  const float v = LOAD(x, from);
  const short_t mine = keys[me] = short_key(v, column);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (row >= rows || column >= cols) return;
  int place = 0;
#pragma unroll 4
  for (int j = 0; j < cols; ++j) place += keys[me - column + j] > mine;
  if (place >= k) return;
  STORE(values, row * k + place, v);
  indices[row * k + place] = column;
}

#else
// A heap with the smallest key on top: brings the one at `at` down to where it belongs.
inline void sink(global ulong* heap, long at, long count) {
  const ulong moved = heap[at];
  for (long child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && heap[child + 1] < heap[child]) ++child;
    if (moved < heap[child]) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

// On a CPU: one work-item per row keeps the k best keys in a heap, which lies where the indices
// will be, and passes over all vectors that hold nothing larger than its top.
kernel void topk_cpu(global const storage_t* from, global storage_t* values, global long* indices,
                     long rows, long cols, long k) {
  const long row = get_global_id(0);
  if (row >= rows) return;
  global const storage_t* x = from + row * cols;
  global ulong* heap = (global ulong*)(indices + row * k);
  for (long i = 0; i < k; ++i) heap[i] = key_of(LOAD(x, i), i);
  for (long i = k / 2 - 1; i >= 0; --i) sink(heap, i, k);
  for (long i = k; i < cols;) {
    float top = LOAD(x, ~(uint)heap[0]);
    ivec_t larger = 0;
    for (; i < cols && !any(larger); i += AHEAD * VEC)
      for (int j = 0; j < AHEAD; ++j)
        larger |= ~(LOADROW(x, 0, i + j * VEC, cols, -INFINITY) <= top);  // a NaN is, too
    if (!any(larger)) break;
    for (long at = i - AHEAD * VEC; at < min(i, cols); ++at) {
      const float v = LOAD(x, at);
      if (v <= top || key_of(v, at) < heap[0]) continue;
      heap[0] = key_of(v, at);
      sink(heap, 0, k);
      top = LOAD(x, ~(uint)heap[0]);
    }
  }
  for (long last = k - 1; last > 0; --last) {  // the smallest goes to the end of what is left
    const ulong least = heap[0];
    heap[0] = heap[last];
    heap[last] = least;
    sink(heap, 0, last);
  }
  for (long i = 0; i < k; ++i) {
    const uint at = ~(uint)heap[i];
    STORE(values, row * k + i, LOAD(x, at));
    indices[row * k + i] = at;
  }
}
#endif
"""


def topk(queue, program, x, values, indices, *, rows, cols, kept, k):
    if rows == 0 or k == 0:
        return
    if program.cpu:
        queue = program.nearby(queue, 4 * rows * cols)
        size = program.rows_on_cpu(rows, cols)
        program.topk_cpu(queue, *size, x, values, indices, rows, cols, k)
        return
    if cols <= NARROW:
        lanes = 1 << (int(cols) - 1).bit_length()
        groups = -(-int(rows) * lanes // WG)
        shape = map(numpy.int32, (cols, k, lanes))
        program.topk_narrow(queue, (groups * WG,), (WG,), x, values, indices, rows, *shape)
        return
    # Twice k work-items find a close bound; a long row has reads for more.
    items = int(max(2 * k, -(-cols // (4 * program.vec)), 64))
    wg = min(WG, 1 << (items - 1).bit_length())
    parts, share = 1, cols + program.vec
    if k <= SPLIT:  # a part has more than that
        parts, share = program.parts(rows, cols, max(16 * WG, 8 * int(k)))
    count = numpy.int32(parts)
    best = program.scratch(8 * int(rows) * parts * int(k)) if parts > 1 else None
    given = x, values, indices, best
    program.topk(queue, (rows * parts * wg,), (wg,), *given, cols, k, share, count)
    if parts > 1:
        program.topk_of_parts(queue, (rows * WG,), (WG,), *given, cols, k, count)
