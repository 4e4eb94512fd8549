import numpy

WG = 256  # knob: 64 128 256 512
FILL = 128  # knob: 64 128 256
WIDE = 8  # knob: 4 8 16 32
AHEAD = 8  # knob: 2 4 8 16
GROUPS = 256

SOURCE = r"""
#define BLOCK 256  // elements of one chain of additions; the error grows with the number of blocks

// One group per contiguous run, or several short runs.
kernel void sum_runs(global const storage_t* x, global storage_t* y, long runs, long count) {
  local float scratch[WG > FILL ? WG : FILL];
  const long run = row_of(), start = min(run, runs - 1) * count;
  const long step = get_local_size(0);
  float total = 0.0f;
  long i = get_local_id(0) * VEC;
  if (VECTORS(count)) {
    while (i + VEC <= count) {
      vec_t part0 = 0.0f, part1 = 0.0f;
      for (int k = 0; k < BLOCK && i + step * VEC + VEC <= count; k += 2, i += 2 * step * VEC) {
        part0 += LOADV(x, start + i);
        part1 += LOADV(x, start + i + step * VEC);
      }
      if (i + VEC <= count) {
        part0 += LOADV(x, start + i);
        i += step * VEC;
      }
      total += sum_of(part0 + part1);
    }
    for (i = count / VEC * VEC + get_local_id(0); i < count; i += step) total += LOAD(x, start + i);
  } else {
    for (i = get_local_id(0); i < count;) {
      float part = 0.0f;
      for (int k = 0; k < BLOCK && i < count; ++k, i += step) part += LOAD(x, start + i);
      total += part;
    }
  }
  total = group_sum(total, scratch);
  if (get_local_id(0) == 0 && run < runs) STORE(y, run, total);
}

// A group has a strip of columns, a vector to a work-item, and its work-items along the second
// dimension share the rows. AHEAD loads are under way before the first is added. `whole` says that
// rows consist of whole vectors.
inline void strip(global const storage_t* restrict x, global storage_t* restrict y, long count,
                  long inner, long strips, local vec_t* parts, const bool whole) {
  const int wide = get_local_size(0), tall = get_local_size(1), part = get_local_id(1);
  const int me = part * wide + get_local_id(0);
  const long slice = get_group_id(0) / strips;
  const long column = (get_group_id(0) % strips * wide + get_local_id(0)) * VEC;
  const long step = tall * inner, last = (slice + 1) * count * inner;
  vec_t total = 0.0f;
  for (long row = (slice * count + part) * inner; row < last && column < inner;) {
    vec_t block = 0.0f;
    int k = 0;
    for (; k < BLOCK && row + (AHEAD - 1) * step < last; k += AHEAD, row += AHEAD * step) {
      vec_t v[AHEAD];
#pragma unroll
      for (int a = 0; a < AHEAD; ++a)
        v[a] = whole ? LOADV(x, row + a * step + column)
                     : LOADROW(x, row + a * step, column, inner, 0.0f);
#pragma unroll
      for (int a = 0; a < AHEAD; ++a) block += v[a];
    }
    for (; k < BLOCK && row < last; ++k, row += step)
      block += LOADROW(x, row, column, inner, 0.0f);
    total += block;
  }
  parts[me] = total;
  for (int half_ = tall / 2; half_ > 0; half_ /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (part < half_) parts[me] += parts[me + half_ * wide];
  }
  if (part > 0 || column >= inner) return;
  STOREROW(y, slice * inner, column, inner, parts[me]);
}

kernel void sum_columns(global const storage_t* restrict x, global storage_t* restrict y,
                        long count, long inner, long strips) {
  local vec_t parts[WG];
  strip(x, y, count, inner, strips, parts, true);
}

kernel void sum_columns_odd(global const storage_t* restrict x, global storage_t* restrict y,
                            long count, long inner, long strips) {
  local vec_t parts[WG];
  strip(x, y, count, inner, strips, parts, false);
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
"""


def sum(queue, program, x, y, *, outer, reduce, inner):
    if outer == 0 or inner == 0:
        return
    if inner == 1:
        items = int(max(1, -(-reduce // (2 * program.vec))))  # that have something to read
        program.sum_runs(queue, *program.row_groups(outer, items, WG, FILL), x, y, outer, reduce)
        return
    chunks = int(-(-inner // program.vec))
    if program.cpu:
        program.sum_columns_cpu(queue, (chunks, outer), (1, 1), x, y, reduce, inner)
        return
    wide = min(WIDE, 1 << (chunks - 1).bit_length())
    while wide > 4 and outer * -(-chunks // wide) < GROUPS:  # a large GPU would have idle cores
        wide //= 2
    strips = numpy.int64(-(-chunks // wide))
    tall = WG // wide
    kernel = program.sum_columns_odd if inner % program.vec else program.sum_columns
    kernel(queue, (strips * outer * wide, tall), (wide, tall), x, y, reduce, inner, strips)
