import numpy

WG = 256  # knob: 64 128 256
ROWS = 16  # knob: 8 16 32
ROOM = 512  # knob: 512 1024
CROWD = 128  # knob: 64 128
MOST_ROWS, TALL, GROUPS, FILL, FEW = 64, 64, 1024, 512, 16
SUMS = 16384  # of a block, on a CPU

SOURCE = r"""
#ifndef PORTKERN_CPU
#define SCAN 8  // indices on their way at once

// A group owns a block of rows of y, or a band of their columns. It lists the src rows that go
// there, in their order, and makes each element in one register: no atomic addition, and the same
// bits every time.
kernel void scatter_add(global const storage_t* x, global const long* index,
                        global const storage_t* src, global storage_t* y, long rows, long dim,
                        long n, int block) {
  local ulong found[ROOM], listed[ROOM];
  local int count, begin[MOST_ROWS + 1];
  const int size = get_local_size(0) * get_local_size(1);
  const int me = get_local_id(1) * get_local_size(0) + get_local_id(0);
  const long first = (long)get_group_id(0) * block;
  const int mine = min((long)block, rows - first);
  if (me == 0) count = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (long i = me; i < n; i += SCAN * size) {
    long to[SCAN];
#pragma unroll
    for (int u = 0; u < SCAN; ++u) to[u] = index[min(i + u * size, n - 1)] - first;
#pragma unroll
    for (int u = 0; u < SCAN; ++u) {
      if (to[u] < 0 || to[u] >= mine || i + u * size >= n) continue;
      const int slot = atomic_inc(&count);
      if (slot < ROOM) found[slot] = (ulong)to[u] << 32 | (uint)(i + u * size);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const bool fits = count <= ROOM;
  const int all = fits ? count : 0;
  for (int e = me; e < all; e += size) {  // sorted: each goes where as many are less
    int less = 0;
    for (int j = 0; j < all; ++j) less += found[j] < found[e];
    listed[less] = found[e];
  }
  for (int r = me; r <= mine; r += size) {
    int before = 0;
    for (int j = 0; j < all; ++j) before += found[j] >> 32 < r;
    begin[r] = before;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const long lane = get_global_id(2) * get_local_size(0) + get_local_id(0);
  const long lanes = get_global_size(2) * get_local_size(0);
  for (int r = get_local_id(1); r < mine; r += get_local_size(1)) {
    const long start = (first + r) * dim;
    for (long c = lane * VEC; c < dim && VECTORS(dim); c += lanes * VEC) {
      vec_t sum = LOADROW(x, start, c, dim, 0.0f);
      for (int e = begin[r]; e < begin[r + 1]; ++e)
        sum += LOADROW(src, (uint)listed[e] * dim, c, dim, 0.0f);
      for (long i = 0; i < n && !fits; ++i)
        if (index[i] == first + r) sum += LOADROW(src, i * dim, c, dim, 0.0f);
      STOREROW(y, start, c, dim, sum);
    }
    for (long c = lane; c < dim && !VECTORS(dim); c += lanes) {
      float sum = LOAD(x, start + c);
      for (int e = begin[r]; e < begin[r + 1]; ++e) sum += LOAD(src, (uint)listed[e] * dim + c);
      for (long i = 0; i < n && !fits; ++i)
        if (index[i] == first + r) sum += LOAD(src, i * dim + c);
      STORE(y, start + c, sum);
    }
  }
}

// A few entries: a work-item has a vector of x, wherever rows begin, and holds each entry's row
// against it.
kernel void scatter_add_few(global const storage_t* restrict x, global const long* index,
                            global const storage_t* restrict src, global storage_t* restrict y,
                            long count, long dim, int n) {
  const long i = (long)get_global_id(0) * VEC;
  if (i >= count) return;
  vec_t sum = LOADV(x, i);
  for (int e = 0; e < n; ++e) {
    const long at = i - index[e] * dim;  // in the entry's row
    if (at <= -VEC || at >= dim) continue;
#pragma unroll
    for (int j = 0; j < VEC; ++j)
      if (at + j >= 0 && at + j < dim) ((float*)&sum)[j] += LOAD(src, e * dim + at + j);
  }
  STOREROW(y, 0, i, count, sum);
}

// Few rows that get much: a group has a part of the entries, a tile of rows and a band of columns.
// Its work-items stand in teams as wide as the band, which take entries in turns; a work-item alone
// adds to its sums.
kernel void scatter_add_crowded(global const long* index, global const storage_t* restrict src,
                                global float* restrict partial, local float* sums, int rows,
                                int dim, long n, int wide, int tall, int parts) {
  const int me = get_local_id(0), part = get_group_id(0) % parts;
  const int top = get_group_id(0) / parts * tall, left = get_group_id(1) * wide;
  const int teams = CROWD / wide, team = me / wide, across = min(wide, dim - left);
  const int here = min(tall, rows - top);
  const long share = (n + parts - 1) / parts, last = min((part + 1) * share, n);
  const bool active = team < teams && me % wide < across;
  src += left + me % wide;
  for (int r = 0; r < here; ++r) sums[r * CROWD + me] = 0.0f;
  for (long i = part * share + team; i < last && active; i += SCAN * teams) {
    long to[SCAN];
    float v[SCAN];
#pragma unroll
    for (int u = 0; u < SCAN; ++u) {
      const long at = i + u * teams;
      to[u] = at < last ? index[at] - top : -1;
    }
#pragma unroll
    for (int u = 0; u < SCAN; ++u) {
      if (to[u] >= here) to[u] = -1;
      v[u] = LOAD(src, (to[u] < 0 ? i : i + u * teams) * dim);  // no condition: all under way
    }
#pragma unroll
    for (int u = 0; u < SCAN; ++u)
      if (to[u] >= 0) sums[(int)to[u] * CROWD + me] += v[u];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = me; i < here * across; i += CROWD) {
    const int r = i / across, c = i % across;
    float total = 0.0f;
    for (int t = 0; t < teams; ++t) total += sums[r * CROWD + t * wide + c];
    partial[((long)part * rows + top + r) * dim + left + c] = total;
  }
}

// x with what the parts have: 32 neighbours to a group, whose work-items share the parts.
kernel void scatter_add_parts(global const storage_t* restrict x,
                              global const float* restrict partial,
                              global storage_t* restrict y, long count, int parts) {
  local float sums[8][32];
  const int c = get_local_id(0), me = get_local_id(1);
  const long i = (long)get_group_id(0) * 32 + c;
  float sum = 0.0f;
#pragma unroll 8
  for (int p = me; p < parts; p += 8) sum += partial[p * count + min(i, count - 1)];
  sums[me][c] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (me > 0 || i >= count) return;
  for (int k = 1; k < 8; ++k) sum += sums[k][c];
  STORE(y, i, LOAD(x, i) + sum);
}

// Many rows get more than lists hold: sums in float32, which everyone adds to.
inline void add_to(global float* sum, float v) {
#ifdef __NV_CL_C_VERSION
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"((ulong)sum), "f"(v) : "memory");
#else
  volatile global uint* bits = (volatile global uint*)sum;
  for (uint old = *bits, seen;; old = seen)
    if ((seen = atomic_cmpxchg(bits, old, as_uint(as_float(old) + v))) == old) return;
#endif
}
kernel void scatter_add_widen(global const storage_t* restrict x, global float* restrict sums,
                              long count) {
  const long i = get_global_id(0);
  if (i < count) sums[i] = LOAD(x, i);
}
kernel void scatter_add_atomic(global const long* index, global const storage_t* restrict src,
                               global float* restrict sums, long count, long dim) {
  const long i = get_global_id(0);
  if (i >= count) return;
  const long entry = count >> 32 ? i / dim : (uint)i / (uint)dim;
  add_to(sums + index[entry] * dim + (i - entry * dim), LOAD(src, i));
}
kernel void scatter_add_narrow(global const float* restrict sums, global storage_t* restrict y,
                               long count) {
  const long i = get_global_id(0);
  if (i < count) STORE(y, i, sums[i]);
}

#else
// On a CPU a work-item makes `tall` rows, or columns of one, as floats that stay in a near cache.
// It looks at all of the index, so that rows get their entries in order.
kernel void scatter_add_cpu(global const storage_t* x, global const long* index,
                            global const storage_t* src, global storage_t* y, long rows, long dim,
                            long n, long tall, long broad) {
  local float sums[SUMS + VEC];
  const long top = get_global_id(0) * tall, left = get_global_id(1) * broad;
  const long here = min(tall, rows - top), wide = min(broad, dim - left);
  const long count = here * wide, start = top * dim + left;  // in a row, if rows are not whole
  for (long i = 0; i < count; i += VEC)
    *(local floats_t*)(sums + i) = (floats_t){LOADROW(x, start, i, count, 0.0f)};
  for (long e = 0; e < n; ++e) {
    const long at = index[e] - top;
    if (at < 0 || at >= here) continue;
    local float* to = sums + at * wide;
    const long from = e * dim + left;
    long c = 0;
    for (; c + VEC <= wide; c += VEC)
      *(local floats_t*)(to + c) =
          (floats_t){((local floats_t*)(to + c))->v + LOADV(src, from + c)};
    for (; c < wide; ++c) to[c] += LOAD(src, from + c);
  }
  for (long i = 0; i < count; i += VEC)
    STOREROW(y, start, i, count, ((local floats_t*)(sums + i))->v);
}
#endif
"""


def scatter_add(queue, program, x, index, src, y, *, rows, dim, n):
    if rows == 0 or dim == 0:
        return
    if program.cpu:
        add_on_cpu(queue, program, x, index, src, y, rows, dim, n)
        return
    # Few enough rows that the list has room for theirs.
    block = min(ROWS, int(ROOM * rows // (4 * n + 1)))
    if take_another_way(queue, program, x, index, src, y, rows, dim, n, block):
        return
    block = numpy.int32(min(block, -(-int(rows) // FILL)))
    groups = -(-int(rows) // int(block))
    chunks = int(-(-dim // (program.vec if dim % program.vec == 0 else 1)))
    across = min(WG, 1 << (chunks - 1).bit_length())
    bands = min(-(-chunks // across), -(-FILL // groups))
    size = (groups * across, WG // across, bands), (across, WG // across, 1)
    program.scatter_add(queue, *size, x, index, src, y, rows, dim, n, block)


def add_on_cpu(queue, program, x, index, src, y, rows, dim, n):
    """Blocks as large as sums have room for, or smaller ones where there would be few."""
    tall, broad = max(1, SUMS // int(dim)), min(SUMS, int(dim))
    # Each looks at all of the index, which is to take no longer than the sums do.
    enough = min(32, max(4, int((rows + n) * dim // max(n, 1))))
    tall = min(tall, max(1, -(-int(rows) // enough), 1024 // int(dim)))
    if tall == 1:
        broad = min(broad, max(128, -(-int(rows * dim) // 32)))
    size = -(-rows // tall), -(-dim // broad)
    queue = program.nearby(queue, (rows + n) * dim + size[0] * size[1] * n)
    blocks = numpy.int64(tall), numpy.int64(broad)
    program.scatter_add_cpu(queue, size, (1, 1), x, index, src, y, rows, dim, n, *blocks)


def take_another_way(queue, program, x, index, src, y, rows, dim, n, block):
    """Whether one of the ways that a GPU has for other shapes is taken."""
    count = rows * dim
    if n <= FEW:
        add_few(queue, program, x, index, src, y, count, dim, n)
    elif rows <= 1024 and n >= max(256, 32 * rows):  # each tile of rows reads the index again
        add_crowded(queue, program, x, index, src, y, rows, dim, n)
    elif block < 1 or (rows // block * n > 1 << 20 and rows > 2 * dim * block):
        # Groups' lists would be too long, or they would read the index too often.
        add_atomic(queue, program, x, index, src, y, count, dim, n)
    else:
        return False
    return True


def add_few(queue, program, x, index, src, y, count, dim, n):
    """With no entries, a copy."""
    groups = -(-count // (WG * program.vec))
    size = (groups * WG,), (WG,)
    program.scatter_add_few(queue, *size, x, index, src, y, count, dim, numpy.int32(n))


def add_crowded(queue, program, x, index, src, y, rows, dim, n):
    import pyopencl

    bands = -(-int(dim) // CROWD)
    wide, tall = -(-int(dim) // bands), min(int(rows), TALL)
    tiles = -(-int(rows) // tall)
    # Sums of a part are written and read again: they are as little as its entries, or less.
    most = int(n) // min(max(4 * int(rows), 64), 512)
    parts = max(1, min(GROUPS // (tiles * bands), most))
    partial = program.scratch(4 * parts * int(rows * dim))
    sizes = map(numpy.int32, (wide, tall, parts))
    size = (parts * tiles * CROWD, bands), (CROWD, 1)
    sums = pyopencl.LocalMemory(4 * tall * CROWD)
    shape = numpy.int32(rows), numpy.int32(dim), n
    program.scatter_add_crowded(queue, *size, index, src, partial, sums, *shape, *sizes)
    size = (-(-rows * dim // 32) * 32, 8), (32, 8)
    program.scatter_add_parts(queue, *size, x, partial, y, rows * dim, numpy.int32(parts))


def add_atomic(queue, program, x, index, src, y, count, dim, n):
    """A float32 result has room for the sums."""
    halves = program.vec == 8
    sums = program.scratch(4 * int(count)) if halves else y
    size = (-(-count // WG) * WG,), (WG,)
    if halves:
        program.scatter_add_widen(queue, *size, x, sums, count)
    else:
        add_few(queue, program, x, index, src, y, count, dim, 0)
    entries = (-(-n * dim // WG) * WG,), (WG,)
    program.scatter_add_atomic(queue, *entries, index, src, sums, n * dim, dim)
    if halves:
        program.scatter_add_narrow(queue, *size, sums, y, count)
