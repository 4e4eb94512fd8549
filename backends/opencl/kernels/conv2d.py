import numpy

from portkern.backends.opencl.include.product import parts_of

FILTERS = 96  # knob: 48 96
DEPTH = 128  # knob: 64 128 256
ROWS = 6
FULL = 264  # knob: 132 264 528
THREADS = 256

SOURCE = r"""
#ifndef PORTKERN_CPU
#include <portkern/operands.h>
#include <portkern/tile.h>
#include <portkern/convolution.h>

// Few tiles share the depth: a group takes `share` of it and leaves its part in `parts`.
INLINE void conv2d(global const storage_t* x, global const storage_t* weight,
                   global const storage_t* bias, global storage_t* y, global float* parts,
                   shape_t s, int share, int splits, const int bm, const int bn, const int wn,
                   local long* targets, local word_t* memory, local int4* taps,
                   local uint* exchange) {
  const int me = get_local_id(0), lane = me % 32, k = s.c * s.kh * s.kw;
  const long plane = s.oh * (long)s.ow, across = (s.n * plane + bn - 1) / bn;
  const long group = get_group_id(0), split = group % splits, tile = group / splits;
  const long first = tile / across * bm, e = tile % across * bn + me % bn, image = e / plane;
  const int pixel = e - image * plane, from = split * share;
  if (me < bn) targets[me] = image < s.n ? image * s.f * plane + pixel : -1;
  const corner_t corner = corner_of(x, s, image, pixel / s.ow, pixel % s.ow, image < s.n);
  float sums[64];
  convolve(sums, corner, weight, s, first, from, min(k, from + share), bm, bn, wn, memory, taps,
           exchange);
  const int row = me / 32 / (bn / wn) * 32, column = me / 32 % (bn / wn) * wn;
  UNROLL for (int i = 0; i < wn; ++i) {
    const long filter = first + row + sum_row(i, lane, wn);
    const long to = targets[column + sum_column(i, lane, wn)];
    if (filter >= s.f || to < 0) continue;
    if (splits > 1) parts[split * s.n * s.f * plane + to + filter * plane] = sums[i];
    else STORE(y, to + filter * plane, sums[i] + LOAD(bias, filter));
  }
}

// With constant sides the sums stay in registers.
#define CONV2D(BM, BN, WN)                                                                         \
  kernel __attribute__((reqd_work_group_size(BM * BN / WN, 1, 1))) void conv2d_##BM##x##BN(        \
      global const storage_t* x, global const storage_t* weight, global const storage_t* bias,     \
      global storage_t* y, global float* parts, long n, long c, int h, int w, long f, int kh,      \
      int kw, int oh, int ow, int stride, int padding, int share, int splits) {                    \
    const shape_t s = {n, c, f, h, w, kh, kw, oh, ow, stride, padding};                            \
    local word_t memory[2 * (WORDS_A(BM) + WORDS_B(BN))] __attribute__((aligned(16)));             \
    local int4 taps[2 * STEP];                                                                    \
    local long targets[BN];                                                                        \
    local uint exchange[EXCHANGE];                                                                 \
    conv2d(x, weight, bias, y, parts, s, share, splits, BM, BN, WN, targets, memory, taps,         \
           exchange);                                                                              \
  }
CONV2D(128, 128, 64)
CONV2D(64, 128, 64)
CONV2D(32, 128, 32)
CONV2D(64, 64, 32)

// What several groups summed of each element of y.
kernel void conv2d_add(global const float* parts, global const storage_t* bias,
                       global storage_t* y, long count, long plane, long f, int splits) {
  const long i = get_global_id(0);
  if (i >= count) return;
  float total = 0.0f;
#pragma unroll 8
  for (int s = 0; s < splits; ++s) total += parts[s * count + i];
  STORE(y, i, total + LOAD(bias, i / plane % f));
}
#endif

#ifdef PORTKERN_CPU
// The elements at column `left` of a line of x and each `stride` after it; 0 outside of it.
inline vec_t spaced(global const storage_t* line, int left, int stride, int w) {
  if (stride == 1 && left >= 0 && left + VEC <= w) return LOADV(line, left);
  const bool inside = left >= 0 && left + (VEC - 1) * stride < w;
  vec_t v;
#pragma unroll
  for (int l = 0; l < VEC; ++l) {
    const int ix = left + l * stride;
    ((float*)&v)[l] = inside || (ix >= 0 && ix < w) ? LOAD(line, ix) : 0.0f;
  }
  return v;
}

// Adds the products of `count` filters with the windows at `top`, `left` and each `stride` to the
// right of it, two vectors of them: DEPTH elements of the windows at a time are gathered for all
// filters, ROWS of which are then in registers.
inline void convolve(global const storage_t* image, global const storage_t* filters, int count,
                     long c, int h, int w, int kh, int kw, int top, int left, int stride,
                     vec_t (*sums)[2]) {
  const long k = c * kh * kw;
  vec_t windows[DEPTH][2];
  int r = 0, s = 0;
  for (long p = 0; p < k; p += DEPTH) {
    const int depth = k - p < DEPTH ? k - p : DEPTH;
    for (int q = 0; q < depth; ++q) {
      const bool inside = top + r >= 0 && top + r < h;
      global const storage_t* line = image + (top + r) * (long)w;
      windows[q][0] = inside ? spaced(line, left + s, stride, w) : 0.0f;
      windows[q][1] = inside ? spaced(line, left + s + VEC * stride, stride, w) : 0.0f;
      if (++s < kw) continue;
      s = 0;
      if (++r < kh) continue;
      r = 0;
      image += h * (long)w;
    }
    for (int i = 0; i < count; i += ROWS) {
      vec_t s0[ROWS], s1[ROWS];
      long from[ROWS];
#pragma unroll
      for (int j = 0; j < ROWS; ++j) {
        from[j] = (i + j < count ? i + j : count - 1) * k + p;  // the last is repeated
        s0[j] = sums[i + j][0];
        s1[j] = sums[i + j][1];
      }
      for (int q = 0; q < depth; ++q) {
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
          const vec_t weight = LOAD(filters, from[j] + q);
          s0[j] += weight * windows[q][0];
          s1[j] += weight * windows[q][1];
        }
      }
#pragma unroll
      for (int j = 0; j < ROWS; ++j) {
        sums[i + j][0] = s0[j];
        sums[i + j][1] = s1[j];
      }
    }
  }
}

// On a CPU: two vectors of a line of y, of FILTERS filters, per work-item.
kernel void conv2d_cpu(global const storage_t* x, global const storage_t* weight,
                       global const storage_t* bias, global storage_t* y, long n, long c, int h,
                       int w, long f, int kh, int kw, int oh, int ow, int stride, int padding) {
  const int ox = get_global_id(0) * 2 * VEC, oy = get_global_id(1);
  const long blocks = (f + FILTERS - 1) / FILTERS, image = get_global_id(2) / blocks;
  const long first = get_global_id(2) % blocks * FILTERS;
  const int count = min((long)FILTERS, f - first);
  vec_t sums[FILTERS][2];
  for (int i = 0; i < FILTERS; ++i) sums[i][0] = sums[i][1] = i < count ? LOAD(bias, first + i) : 0;
  convolve(x + image * c * h * w, weight + first * c * kh * kw, count, c, h, w, kh, kw,
           oy * stride - padding, ox * stride - padding, stride, sums);
  for (int i = 0; i < count; ++i)
    for (int v = 0; v < 2; ++v)
      STOREROW(y, ((image * f + first + i) * oh + oy) * ow, ox + v * VEC, ow, sums[i][v]);
}
#endif
"""


def conv2d(queue, program, x, weight, bias, y, *, n, c, h, w, f, kh, kw, oh, ow, stride, padding):
    count = n * f * oh * ow
    if count == 0:
        return
    small = numpy.int32
    sizes = (n, c, small(h), small(w), f, small(kh), small(kw), small(oh), small(ow))
    sizes = (*sizes, small(stride), small(padding))
    if program.cpu:
        queue = program.nearby(queue, count * c * kh * kw // 8)
        size = (-(-ow // (2 * program.vec)), oh, n * -(-f // FILTERS))
        program.conv2d_cpu(queue, size, (1, 1, 1), x, weight, bias, y, *sizes)
        return
    if max(c * h * w, c * kh * kw) >= 1 << 31:
        raise ValueError(f"conv2d: got an image of {c} x {h} x {w}, expected below 2^31 elements")
    high, wide, items, tiles = tile_of(int(f), int(n * oh * ow), FULL)
    splits, share = parts_of(int(c * kh * kw), tiles, FULL, 128)
    parts = program.scratch(4 * splits * int(count)) if splits > 1 else y
    shares = map(numpy.int32, (share, splits))
    kernel = getattr(program, f"conv2d_{high}x{wide}")
    size = (tiles * splits * items,)
    kernel(queue, size, (items,), x, weight, bias, y, parts, *sizes, *shares)
    if splits > 1:
        size = (-(-count // THREADS) * THREADS,)
        last = (parts, bias, y, count, oh * ow, f, small(splits))
        program.conv2d_add(queue, size, (THREADS,), *last)


def tile_of(filters, windows, full):
    """Sides of a tile, its work-items, and how many tiles there are: the largest of which there are
    enough, as windows are gathered anew for each tile of filters."""
    for high, wide, items in ((128, 128, 256), (64, 128, 128), (64, 64, 128)):
        tiles = -(-filters // high) * -(-windows // wide)
        if filters > high // 2 and 2 * tiles >= full:
            return high, wide, items, tiles
    if filters > 32:
        return high, wide, items, tiles
    return 32, 128, 128, -(-filters // 32) * -(-windows // 128)
