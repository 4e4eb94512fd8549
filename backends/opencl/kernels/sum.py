WG = 256  # knob: 64 128 256 512
SPLIT = 8  # knob: 1 4 8 16

SOURCE = r"""
#define BLOCK 256  // elements of one chain of additions; the error grows with the number of blocks

// One group per contiguous run.
kernel void sum_runs(global const storage_t* x, global storage_t* y, long count) {
  local float scratch[WG];
  const long start = (long)get_group_id(0) * count;
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
  if (get_local_id(0) == 0) STORE(y, get_group_id(0), total);
}

// One work-item per column of a slice; SPLIT of them share a column.
kernel void sum_columns(global const storage_t* x, global storage_t* y, long count, long inner) {
  local float parts[SPLIT][WG / SPLIT];
  const int lane = get_local_id(0), part = get_local_id(1);
  const long column = get_global_id(0), slice = get_group_id(2);
  global const storage_t* from = x + slice * count * inner + column;
  float total = 0.0f;
  if (column < inner) {
    for (long r = part; r < count;) {
      float block = 0.0f;
      for (int k = 0; k < BLOCK && r < count; ++k, r += SPLIT) block += LOAD(from, r * inner);
      total += block;
    }
  }
  parts[part][lane] = total;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (part == 0 && column < inner) {
    for (int p = 1; p < SPLIT; ++p) total += parts[p][lane];
    STORE(y, slice * inner + column, total);
  }
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
        wg = 1 if program.cpu else WG
        program.sum_runs(queue, (outer * wg,), (wg,), x, y, reduce)
    elif program.cpu:
        chunks = -(-inner // program.vec)
        program.sum_columns_cpu(queue, (chunks, outer), (1, 1), x, y, reduce, inner)
    else:
        lanes = WG // SPLIT
        size = (-(-inner // lanes) * lanes, SPLIT, outer)
        program.sum_columns(queue, size, (lanes, SPLIT, 1), x, y, reduce, inner)
