import numpy

WG = 256  # knob: 64 128 256 512
WIDE = 8  # knob: 4 8 16 32
AHEAD = 8  # knob: 2 4 8 16
GROUPS, NARROW, SHORT, MANY = 256, 256, 8, 1 << 20

SOURCE = r"""
#include <portkern/rows.h>

#define BLOCK 256  // elements of one chain of additions; the error grows with the number of blocks

#ifndef PORTKERN_CPU
// `partial` where several groups share a sum.
inline void tell(global float* partial, global storage_t* y, long i, float sum) {
  if (partial) partial[i] = sum;
  else STORE(y, i, sum);
}

kernel void sum_copy(global const storage_t* restrict x, global storage_t* restrict y, long n) {
  const long i = (long)get_global_id(0) * VEC;
  if (i < n) STOREROW(y, 0, i, n, LOADROW(x, 0, i, n, 0.0f));
}

// A row to a group, or a part of one.
kernel void sum_rows(global const storage_t* restrict x, global storage_t* restrict y,
                     global float* partial, long cols, long share, int parts) {
  local float scratch[WG];
  const uint group = get_group_id(0);
  const span_t s = part_of(group / parts, cols, share, group % parts);
  const float sum = group_sum(span_moment(x, s, 0.0f, false), scratch);
  if (get_local_id(0) == 0) tell(partial, y, group, sum);
}

// A tile of narrow rows, or of short sums of few columns, which lie as rows of all of them do.
kernel void sum_narrow(global const storage_t* restrict x, global storage_t* restrict y, int inner,
                       long rows, int cols, int pitch, int lanes, int tall) {
  local uint4 tile[TILE_VECTORS];
  local float sums[TILE_WG];
  const rows_t b = block_of(rows, cols, pitch, lanes, tall);
  fill_tile(tile, x, b);
  for (int r = get_local_id(0) / lanes; r < tall && inner == 1; r += TILE_WG / lanes) {
    float v[TILE_MOST], sum = 0.0f;
    take_row(v, TILE_MOST, tile, b, r, 0.0f);
#pragma unroll
    for (int j = 0; j < TILE_MOST; ++j) sum += v[j];
    sum = lanes_sum(sum, b, sums);
    if (b.lane == 0 && r < b.rows) STORE(y, b.first + r, sum);
  }
  for (int i = get_local_id(0); i < b.rows * inner && inner > 1; i += TILE_WG) {
    const int r = i / inner, c = i % inner;
    local const raw_t* row = (local const raw_t*)tile + r * pitch;
    float sum = 0.0f;
    for (int k = c; k < cols;) {
      float part = 0.0f;
      for (int stop = k + TILE_MOST * inner; k < cols && k < stop; k += inner)
        part += TILE_LOAD(row, k);
      sum += part;
    }
    STORE(y, b.first * inner + i, sum);
  }
}

// Fewer columns than 32: work-items go through memory in its order, a multiple of `inner` at a
// time, so that each stays in its column.
kernel void sum_few(global const storage_t* restrict x, global storage_t* restrict y,
                    global float* partial, long count, int inner, long share, int parts) {
  local float sums[WG];
  const int me = get_local_id(0), active = WG / inner * inner, some = 8 * inner;
  const uint group = get_group_id(0), slice = group / parts, part = group % parts;
  const int last = (int)max(min(share, count - part * share), 0l) * inner;
  global const storage_t* from = x + (slice * count + part * share) * inner;
  float total = 0.0f;
  for (int i = me; i < last && me < active;) {
    float block = 0.0f;
    for (int b = 0; b < BLOCK && i < last; b += AHEAD, i += AHEAD * active) {
      float v[AHEAD];
#pragma unroll
      for (int a = 0; a < AHEAD; ++a) v[a] = LOAD(from, min(i + a * active, last - 1));
#pragma unroll
      for (int a = 0; a < AHEAD; ++a) block += i + a * active < last ? v[a] : 0.0f;
    }
    total += block;
  }
  sums[me] = total;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = me + some; me < some && i < active; i += some) total += sums[i];
  if (me < some) sums[me] = total;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (me >= inner) return;
  for (int i = me + inner; i < some && i < active; i += inner) total += sums[i];
  tell(partial, y, group * (long)inner + me, total);
}

// A sum, or those of a vector of columns, to a work-item: there are few terms, or many sums.
inline void column(global const storage_t* restrict x, global storage_t* restrict y, long sums,
                   long count, long inner, const bool whole) {
  const long i = (long)get_global_id(0) * (whole ? VEC : 1);
  if (i >= sums) return;
  const long slice = sums >> 32 ? i / inner : (uint)i / (uint)inner;
  const long from = slice * count * inner + (i - slice * inner);
  vec_t total = 0.0f;
  for (long row = 0; row < count;) {
    vec_t block = 0.0f;
#pragma unroll 8
    for (int k = 0; k < BLOCK && row < count; ++k, ++row) {
      if (whole) block += LOADV(x, from + row * inner);
      else block.x += LOAD(x, from + row * inner);
    }
    total += block;
  }
  if (whole) STOREV(y, i, total);
  else STORE(y, i, total.x);
}
kernel void sum_short(global const storage_t* restrict x, global storage_t* restrict y, long sums,
                      long count, long inner) {
  column(x, y, sums, count, inner, true);
}
kernel void sum_short_odd(global const storage_t* restrict x, global storage_t* restrict y,
                          long sums, long count, long inner) {
  column(x, y, sums, count, inner, false);
}

// A group has a strip of columns, a vector of them to a work-item or, in rows without vectors, one,
// and its work-items along the second dimension share the rows of its part. AHEAD loads are under
// way before the first is added.
inline void strip(global const storage_t* restrict x, global storage_t* restrict y,
                  global float* partial, long count, long inner, int strips, long share, int parts,
                  local vec_t* sums, const bool whole) {
  const int wide = get_local_size(0), tall = get_local_size(1), me = get_local_id(1);
  const uint all = (uint)get_group_id(0) / strips, slice = all / parts, part = all % parts;
  const int width = whole ? VEC : 1, mine = me * wide + get_local_id(0);
  const long column = ((uint)get_group_id(0) % strips * wide + get_local_id(0)) * width;
  const long last = min((part + 1) * share, count);
  global const storage_t* from = x + slice * count * inner + min(column, inner - width);
  vec_t total = 0.0f;
  for (long row = part * share + me; row < last;) {
    vec_t block = 0.0f;
    for (int k = 0; k < BLOCK && row < last; k += AHEAD, row += AHEAD * tall) {
      vec_t v[AHEAD];
#pragma unroll
      for (int a = 0; a < AHEAD; ++a) {
        const long at = min(row + a * tall, last - 1) * inner;
        v[a] = whole ? LOADV(from, at) : (vec_t)(LOAD(from, at));
      }
#pragma unroll
      for (int a = 0; a < AHEAD; ++a) block += row + a * tall < last ? v[a] : (vec_t)(0.0f);
    }
    total += block;
  }
  sums[mine] = total;
  for (int half_ = tall / 2; half_ > 0; half_ /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me < half_) sums[mine] += sums[mine + half_ * wide];
  }
  if (me > 0 || column >= inner) return;
  for (int j = 0; j < width; ++j)
    tell(partial, y, all * inner + column + j, ((local float*)&sums[mine])[j]);
}
kernel void sum_columns(global const storage_t* restrict x, global storage_t* restrict y,
                        global float* partial, long count, long inner, int strips, long share,
                        int parts) {
  local vec_t sums[WG];
  strip(x, y, partial, count, inner, strips, share, parts, sums, true);
}
kernel void sum_columns_odd(global const storage_t* restrict x, global storage_t* restrict y,
                            global float* partial, long count, long inner, int strips, long share,
                            int parts) {
  local vec_t sums[WG];
  strip(x, y, partial, count, inner, strips, share, parts, sums, false);
}

// What several groups summed: a group has some neighbouring sums, of which several work-items each
// add parts.
kernel void sum_partials(global const float* restrict partial, global storage_t* restrict y,
                         long sums, long inner, int parts) {
  local float all[WG];
  const int wide = get_local_size(0), tall = get_local_size(1), c = get_local_id(0);
  const int me = get_local_id(1);
  const long i = get_global_id(0), at = min(i, sums - 1);
  partial += at / inner * parts * inner + at % inner;
  float total = 0.0f;
#pragma unroll 8
  for (int p = me; p < parts; p += tall) total += partial[p * inner];
  all[me * wide + c] = total;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (me > 0 || i >= sums) return;
  for (int k = 1; k < tall; ++k) total += all[k * wide + c];
  STORE(y, i, total);
}

#else
// On a CPU: one work-item per contiguous run.
kernel void sum_runs_cpu(global const storage_t* x, global storage_t* y, long runs, long count) {
  const long run = get_global_id(0), start = run * count;
  if (run >= runs) return;
  float total = 0.0f;
  long i = 0;
  while (i + VEC <= count) {
    vec_t part0 = 0.0f, part1 = 0.0f;
    for (int k = 0; k < BLOCK && i + 2 * VEC <= count; k += 2, i += 2 * VEC) {
      part0 += LOADV(x, start + i);
      part1 += LOADV(x, start + i + VEC);
    }
    if (i + VEC <= count) {
      part0 += LOADV(x, start + i);
      i += VEC;
    }
    total += sum_of(part0 + part1);
  }
  for (; i < count; ++i) total += LOAD(x, start + i);
  STORE(y, run, total);
}

// On a CPU: VEC columns per work-item, whole cache lines of them.
kernel void sum_columns_cpu(global const storage_t* x, global storage_t* y, long count,
                            long inner) {
  const long column = (long)get_global_id(0) * VEC, slice = get_global_id(1);
  global const storage_t* from = x + slice * count * inner;
  if (column + VEC <= inner) {
    vec_t total = 0.0f;
    for (long r = 0; r < count;) {
      vec_t block = 0.0f;
      for (int k = 0; k < BLOCK && r < count; ++k, ++r) block += LOADV(from, r * inner + column);
      total += block;
    }
    STOREV(y, slice * inner + column, total);
    return;
  }
  for (long c = column; c < inner; ++c) {
    float total = 0.0f;
    for (long r = 0; r < count;) {
      float block = 0.0f;
      for (int k = 0; k < BLOCK && r < count; ++k, ++r) block += LOAD(from, r * inner + c);
      total += block;
    }
    STORE(y, slice * inner + c, total);
  }
}
#endif
"""


def sum(queue, program, x, y, *, outer, reduce, inner):
    sums = outer * inner
    if sums == 0:
        return
    queue = program.nearby(queue, sums + sums * reduce)
    if program.cpu and inner == 1:
        program.sum_runs_cpu(queue, *program.rows_on_cpu(outer, reduce + 1), x, y, outer, reduce)
    elif program.cpu:
        chunks = int(-(-inner // program.vec))
        [across], [wide] = program.rows_on_cpu(chunks, program.vec * (reduce + 1))
        program.sum_columns_cpu(queue, (across, outer), (wide, 1), x, y, reduce, inner)
    elif reduce == 1:
        program.sum_copy(queue, *over(-(-sums // program.vec)), x, y, sums)
    elif reduce == 0 or (inner > 1 and (reduce <= SHORT or (inner >= 32 and sums >= MANY))):
        whole = inner % program.vec == 0
        kernel = program.sum_short if whole else program.sum_short_odd
        items = sums // program.vec if whole else sums
        kernel(queue, *over(items), x, y, sums, reduce, inner)
    elif inner < 32 and reduce * inner <= NARROW:
        sizes, shape = program.tiles(outer, reduce * inner)
        program.sum_narrow(queue, *sizes, x, y, numpy.int32(inner), outer, *shape)
    else:
        sum_of_parts(queue, program, x, y, outer, reduce, inner)


def over(items):
    """Global and local size of so many work-items."""
    return (-(-items // WG) * WG,), (WG,)


def sum_of_parts(queue, program, x, y, outer, reduce, inner):
    """Each sum by a group, or its parts by several and then those."""
    width = program.vec if inner % program.vec == 0 else 1
    chunks = int(inner) // width
    wide = min(WIDE if width > 1 else 32, 1 << (chunks - 1).bit_length())
    strips = -(-chunks // wide) if inner >= 32 else 1
    groups = int(outer) * strips
    least = WG * 32 if inner == 1 else -(-WG * 32 // int(inner)) if inner < 32 else WG // wide * 16
    parts, share = program.parts(groups if groups < GROUPS else 1 << 31, reduce, least)
    while inner >= 32 and parts == 1 and wide > 4 and groups < GROUPS:
        wide //= 2  # a large GPU would have idle cores
        strips = -(-chunks // wide)
        groups = int(outer) * strips
    sums, count = outer * inner, numpy.int32(parts)
    partial = program.scratch(4 * parts * int(sums)) if parts > 1 else None
    if inner == 1:
        wg = min(WG, -(-int(share) // (32 * 32)) * 32)
        size = (groups * parts * wg,), (wg,)
        program.sum_rows(queue, *size, x, y, partial, reduce, share, count)
    elif inner < 32:
        size = (groups * parts * WG,), (WG,)
        few = numpy.int32(inner), share, count
        program.sum_few(queue, *size, x, y, partial, reduce, *few)
    else:
        kernel = program.sum_columns if width > 1 else program.sum_columns_odd
        size = (groups * parts * wide, WG // wide), (wide, WG // wide)
        shape = inner, numpy.int32(strips), share, count
        kernel(queue, *size, x, y, partial, reduce, *shape)
    if parts > 1:
        across = 32 if inner >= 32 else 1
        size = (-(-sums // across) * across, 64 // across), (across, 64 // across)
        program.sum_partials(queue, *size, partial, y, sums, inner, count)
