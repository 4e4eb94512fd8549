import numpy

WG = 256  # knob: 128 256 512
TILE = 64  # knob: 32 64
THIN_TILE, THIN_MOST, GROUPS, SMALL = 6144, 31, 512, 1 << 20

SOURCE = r"""
#include <portkern/rows.h>

// Elements are moved, never converted: integers of their size.
#ifdef PORTKERN_FLOAT32
typedef uvec_t bits_v;
#else
typedef hvec_t bits_v;
#endif
#define ACROSS (TILE / VEC)  // vectors along a side of the tile
#define ROUNDS ((TILE * ACROSS + WG - 1) / WG)

#ifndef PORTKERN_CPU
// Sides of whole vectors: both the loads and the stores are vectors, which a tile turns.
kernel void transpose(global const raw_t* restrict x, global raw_t* restrict y, long rows,
                      long cols) {
  // 4 bytes more to a row: a column's elements lie in different banks
  local raw_t tile[TILE][TILE + 4 / sizeof(raw_t)];
  const int me = get_local_id(0);
  const long left = (long)get_group_id(0) * TILE, top = (long)get_group_id(1) * TILE;
  bits_v v[ROUNDS];
#pragma unroll
  for (int k = 0; k < ROUNDS; ++k) {
    const int i = (k * WG + me) / ACROSS, j = (k * WG + me) % ACROSS * VEC;
    if (i < TILE && top + i < rows && left + j < cols)
      v[k] = *(global const bits_v*)(x + (top + i) * cols + left + j);
  }
#pragma unroll
  for (int k = 0; k < ROUNDS; ++k) {
    const int i = (k * WG + me) / ACROSS, j = (k * WG + me) % ACROSS * VEC;
    if (i < TILE)
      for (int e = 0; e < VEC; ++e) tile[i][j + e] = ((raw_t*)&v[k])[e];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int k = 0; k < ROUNDS; ++k) {
    const int j = (k * WG + me) / ACROSS, i = (k * WG + me) % ACROSS * VEC;
    if (j >= TILE || top + i >= rows || left + j >= cols) continue;
    bits_v turned;
#pragma unroll
    for (int e = 0; e < VEC; ++e) ((raw_t*)&turned)[e] = tile[i + e][j];
    *(global bits_v*)(y + (left + j) * rows + top + i) = turned;
  }
}

// Any sides, by elements; of a small matrix in tiles of a quarter, which are more groups.
kernel void transpose_odd(global const raw_t* restrict x, global raw_t* restrict y, long rows,
                          long cols) {
  local raw_t tile[TILE][TILE + 4 / sizeof(raw_t)];
  const int across = get_local_id(0), down = get_local_id(1), side = get_local_size(0);
  const int step = get_local_size(1);
  const long left = (long)get_group_id(0) * side, top = (long)get_group_id(1) * side;
  const int wide = min((long)side, cols - left), tall = min((long)side, rows - top);
  x += top * cols + left;
  y += left * rows + top;
#pragma unroll 8
  for (int i = down; i < side; i += step)
    if (i < tall && across < wide) tile[i][across] = x[i * cols + across];
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 8
  for (int i = down; i < side; i += step)
    if (i < wide && across < tall) y[i * rows + across] = tile[across][i];
}

// A matrix of few rows or few columns: `thin` lines of `length`, of which a group has a stretch,
// 1 << `bits` long. On one side its elements follow one another, on the other they lie in lines.
inline void thin_lines(global const raw_t* x, global raw_t* y, int thin, long length, int bits,
                       local uint4* tile, const bool columns) {
  local raw_t* turned = (local raw_t*)tile;
  const long first = (long)get_group_id(0) << bits;
  const int me = get_local_id(0), count = min(1l << bits, length - first), all = count * thin;
  const int whole = all / VEC, mask = (1 << bits) - 1, rest = whole * VEC + me;
  if (columns) {
    x += first * thin;
#pragma unroll 4
    for (int i = me; i < whole; i += WG) tile[i] = ((global const uint4*)x)[i];
    if (rest < all) turned[rest] = x[rest];
  } else {
    x += first;
#pragma unroll 8
    for (int i = me; i < thin << bits; i += WG)
      if ((i & mask) < count)
        turned[(i & mask) * thin + (i >> bits)] = x[(i >> bits) * length + (i & mask)];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (columns) {
    y += first;
#pragma unroll 8
    for (int i = me; i < thin << bits; i += WG)
      if ((i & mask) < count)
        y[(i >> bits) * length + (i & mask)] = turned[(i & mask) * thin + (i >> bits)];
  } else {
    y += first * thin;
#pragma unroll 4
    for (int i = me; i < whole; i += WG) ((global uint4*)y)[i] = tile[i];
    if (rest < all) y[rest] = turned[rest];
  }
}
kernel void transpose_rows(global const raw_t* restrict x, global raw_t* restrict y, int thin,
                           long length, int bits) {
  local uint4 tile[THIN_TILE * sizeof(raw_t) / 16];
  thin_lines(x, y, thin, length, bits, tile, false);
}
kernel void transpose_cols(global const raw_t* restrict x, global raw_t* restrict y, int thin,
                           long length, int bits) {
  local uint4 tile[THIN_TILE * sizeof(raw_t) / 16];
  thin_lines(x, y, thin, length, bits, tile, true);
}

kernel void transpose_vector(global const raw_t* restrict x, global raw_t* restrict y, long n) {
  const long i = (long)get_global_id(0) * VEC;
  if (i + VEC <= n) *(global bits_v*)(y + i) = *(global const bits_v*)(x + i);
  else for (long j = i; j < n; ++j) y[j] = x[j];
}
#else
typedef struct __attribute__((packed)) { bits_v v; } loose_t;  // at any address

inline bits_v low(bits_v a, bits_v b) {
  return (bits_v)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3);
}
inline bits_v high(bits_v a, bits_v b) {
  return (bits_v)(a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7);
}

// A block of 8 x 8 in registers: each of three rounds interleaves the first four with the others.
inline void turn(global const raw_t* x, global raw_t* y, long rows, long cols) {
  bits_v a[VEC], b[VEC];
#pragma unroll
  for (int i = 0; i < VEC; ++i) a[i] = ((global const loose_t*)(x + i * cols))->v;
#pragma unroll
  for (int round = 0; round < 3; ++round) {
#pragma unroll
    for (int i = 0; i < VEC / 2; ++i) {
      b[2 * i] = low(a[i], a[i + VEC / 2]);
      b[2 * i + 1] = high(a[i], a[i + VEC / 2]);
    }
#pragma unroll
    for (int i = 0; i < VEC; ++i) a[i] = b[i];
  }
#pragma unroll
  for (int i = 0; i < VEC; ++i) ((global loose_t*)(y + i * rows))->v = a[i];
}

// On a CPU a work-item moves one tile, whose lines stay in the nearest cache.
kernel void transpose_cpu(global const raw_t* x, global raw_t* y, long rows, long cols) {
  const long left = (long)get_global_id(0) * CPU_TILE, top = (long)get_global_id(1) * CPU_TILE;
  const long right = min(left + CPU_TILE, cols), bottom = min(top + CPU_TILE, rows);
  for (long i = top; i < bottom; i += VEC)
    for (long j = left; j < right; j += VEC) {
      if (i + VEC <= bottom && j + VEC <= right) {
        turn(x + i * cols + j, y + j * rows + i, rows, cols);
        continue;
      }
      for (long q = j; q < min(j + VEC, right); ++q)
        for (long p = i; p < min(i + VEC, bottom); ++p) y[q * rows + p] = x[p * cols + q];
    }
}
kernel void transpose_vector_cpu(global const raw_t* x, global raw_t* y, long n) {
  const long first = (long)get_global_id(0) * STRETCH, last = min(first + STRETCH, n);
  long i = first;
  for (; i + VEC <= last; i += VEC)
    ((global loose_t*)(y + i))->v = ((global const loose_t*)(x + i))->v;
  for (; i < last; ++i) y[i] = x[i];
}
#endif
"""
CPU_TILE = 32  # knob: 16 32 64
STRETCH = 4096  # of a vector, on a CPU


def transpose(queue, program, x, y, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    thin, length = sorted((rows, cols))
    if program.cpu:
        queue = program.nearby(queue, 2 * rows * cols)
        if thin == 1:
            program.transpose_vector_cpu(queue, (-(-length // STRETCH),), (1,), x, y, length)
            return
        size = (-(-cols // CPU_TILE), -(-rows // CPU_TILE))
        program.transpose_cpu(queue, size, (1, 1), x, y, rows, cols)
    elif thin == 1:
        groups = -(-length // (WG * program.vec))
        program.transpose_vector(queue, (groups * WG,), (WG,), x, y, length)
    elif thin <= THIN_MOST and (thin < 16 or thin % program.vec or length % program.vec):
        # Enough groups, if that leaves a warp's share to each.
        stretch = min(THIN_TILE // int(thin), max(32, int(length) // GROUPS))
        bits = stretch.bit_length() - 1
        kernel = program.transpose_rows if rows == thin else program.transpose_cols
        groups, shape = -(-length // (1 << bits)), (numpy.int32(thin), length, numpy.int32(bits))
        kernel(queue, (groups * WG,), (WG,), x, y, *shape)
    elif rows % program.vec or cols % program.vec:
        side = TILE // 2 if rows * cols <= SMALL else TILE
        size = (-(-cols // side) * side, -(-rows // side) * (WG // side))
        program.transpose_odd(queue, size, (side, WG // side), x, y, rows, cols)
    else:
        size = (-(-cols // TILE) * WG, -(-rows // TILE))
        program.transpose(queue, size, (WG, 1), x, y, rows, cols)
