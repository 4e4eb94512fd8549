import numpy

from portkern.backends.opencl.include.cpu_product import sides
from portkern.backends.opencl.include.product import parts_of

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
#include <portkern/cpu_tile.h>
#include <portkern/cpu_convolution.h>

// On a CPU: a block of `tall` filters and `broad` windows of an image per work-item.
kernel void conv2d_cpu(global const storage_t* x, global const storage_t* weight,
                       global const storage_t* bias, global storage_t* y, long n, long c, int h,
                       int w, long f, int kh, int kw, int oh, int ow, int stride, int padding,
                       int tall, int broad) {
  local float left[TALL * PITCH];
  local wide_t right[BROAD * DEPTH / WIDE], sums[TALL * BROAD / WIDE];
  const shape_t s = {n, c, f, h, w, kh, kw, oh, ow, stride, padding};
  const long top = get_global_id(0) * tall, image = get_global_id(2);
  const int first = get_global_id(1) * broad, plane = oh * ow;
  const int rows = min((long)tall, f - top), cols = min(broad, plane - first);
  convolve(left, right, sums, x + image * c * h * w, weight + top * c * kh * kw, s, rows, cols,
           first, ow, 0, 0);
  for (int i = 0; i < rows; ++i)
    for (int l = 0; l < cols; l += VEC)
      STOREROW(y, (image * f + top + i) * plane, first + l, plane,
               *(local const vec_t*)sums_of(sums, i, l) + LOAD(bias, top + i));
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
        if kh == kw == stride == 1 and padding == 0:  # lines follow one another
            sizes = (n, c, small(1), small(h * w), f, *sizes[5:7], small(1), small(oh * ow))
            sizes = (*sizes, small(1), small(0))
        tall, broad = sides(int(n), int(f), int(oh * ow))
        size = (-(-f // tall), -(-oh * ow // broad), n)
        blocks = small(tall), small(broad)
        program.conv2d_cpu(queue, size, (1, 1, 1), x, weight, bias, y, *sizes, *blocks)
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
