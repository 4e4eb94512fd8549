import numpy

from portkern.backends.opencl.include.cpu_convolution import pools_of

BN = 128
# On a CPU: elements of the convolution that a work-item makes for its pools.
REGION = 24576  # knob: 8192 16384 24576

SOURCE = r"""
#ifndef PORTKERN_CPU
#include <portkern/operands.h>
#include <portkern/tile.h>
#include <portkern/convolution.h>

// A group makes the convolution for bm filters and all that `ph` x `pw` pools read, BN windows at a
// time (once, unless pools are large); then it takes the maxima from local memory.
INLINE void pooled(global const storage_t* x, global const storage_t* weight,
                   global const storage_t* bias, global storage_t* y, shape_t s, int pool,
                   int pool_stride, int ph, int pw, const int bm, const int wn,
                   local word_t* memory, local float* results, local int4* taps,
                   local uint* exchange) {
  const int me = get_local_id(0), lane = me % 32, items = bm * BN / wn, k = s.c * s.kh * s.kw;
  const int warp_row = me / 32 / (BN / wn) * 32, warp_column = me / 32 % (BN / wn) * wn;
  const long across = (s.ow + pw - 1) / pw, down = (s.oh + ph - 1) / ph, group = get_group_id(0);
  const int pool_left = group % across * pw, pool_top = group / across % down * ph;
  const long image = group / across / down % s.n, first = group / across / down / s.n * bm;
  const int width = (pw - 1) * pool_stride + pool, height = (ph - 1) * pool_stride + pool;
  for (int base = 0; base < width * height; base += BN) {
    const int j = base + me % BN;
    const corner_t corner =
        corner_of(x, s, image, pool_top * pool_stride + j / width,
                  pool_left * pool_stride + j % width, j < width * height);
    float sums[64];
    convolve(sums, corner, weight, s, first, 0, k, bm, BN, wn, memory, taps, exchange);
    UNROLL for (int i = 0; i < wn; ++i) {
      const int filter = warp_row + sum_row(i, lane, wn);
      const int column = warp_column + sum_column(i, lane, wn);
      results[filter * BN + column] = sums[i] + LOAD(bias, min(first + filter, s.f - 1));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = me; e < bm * ph * pw; e += items) {
      const int i = e / (ph * pw), py = e % (ph * pw) / pw, px = e % pw;
      const int oy = pool_top + py, ox = pool_left + px;
      if (first + i >= s.f || oy >= s.oh || ox >= s.ow) continue;
      const long to = (((image * s.f) + first + i) * s.oh + oy) * s.ow + ox;
      float most = base == 0 ? 0.0f : LOAD(y, to);  // rounding keeps the order
      for (int r = 0; r < pool; ++r)
        for (int q = 0; q < pool; ++q) {
          const int at = (py * pool_stride + r) * width + px * pool_stride + q - base;
          const float v = at >= 0 && at < BN ? results[i * BN + at] : most;
          most = v > most || v != v ? v : most;  // a NaN is the largest
        }
      STORE(y, to, most);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

// The results take the place of the tiles, of which each word has as many bytes. With constant
// sides the sums stay in registers.
#define TILES(BM) (2 * (WORDS_A(BM) + WORDS_B(BN)))
#define WORDS(BM) (TILES(BM) > BM * BN ? TILES(BM) : BM * BN)
#define POOLED(BM, WN)                                                                           \
  kernel __attribute__((reqd_work_group_size(BM * BN / WN, 1, 1))) void pooled_##BM(             \
      global const storage_t* x, global const storage_t* weight, global const storage_t* bias,   \
      global storage_t* y, long n, long c, int h, int w, long f, int kh, int kw, int oh, int ow, \
      int stride, int padding, int pool, int pool_stride, int ph, int pw) {                      \
    const shape_t s = {n, c, f, h, w, kh, kw, oh, ow, stride, padding};                          \
    local word_t memory[WORDS(BM)] __attribute__((aligned(16)));                                 \
    local int4 taps[2 * STEP];                                                                  \
    local uint exchange[EXCHANGE];                                                               \
    pooled(x, weight, bias, y, s, pool, pool_stride, ph, pw, BM, WN, memory,                     \
           (local float*)memory, taps, exchange);                                                \
  }
POOLED(32, 32)
POOLED(64, 64)
#endif

#ifdef PORTKERN_CPU
#include <portkern/cpu_tile.h>
#include <portkern/cpu_convolution.h>

// On a CPU: `tall` filters and the pools of `ph` lines and `pw` columns of an image per work-item.
// It makes the convolution below them block by block, and brings each element to those pools that
// have it; a pool begins with 0, which is what relu makes of less.
kernel void conv2d_relu_maxpool_cpu(global const storage_t* x, global const storage_t* weight,
                                    global const storage_t* bias, global storage_t* y, long n,
                                    long c, int h, int w, long f, int kh, int kw, int oh, int ow,
                                    int stride, int padding, int pool, int pool_stride, int ph,
                                    int pw, int tall) {
  local float left[TALL * PITCH], line[REGION + 8];
  local wide_t right[BROAD * DEPTH / WIDE], sums[TALL * BROAD / WIDE];
  const shape_t s = {n, c, f, h, w, kh, kw, oh, ow, stride, padding};
  const int across = (ow + pw - 1) / pw;
  const int ox = get_global_id(1) % across * pw, oy = get_global_id(1) / across * ph;
  const long top = get_global_id(0) * tall, image = get_global_id(2);
  const int rows = min((long)tall, f - top), pools = min(pw, ow - ox), lines = min(ph, oh - oy);
  const int width = (pools - 1) * pool_stride + pool, height = (lines - 1) * pool_stride + pool;
  const int all = width * height;
  for (int first = 0; first < all; first += BROAD) {
    const int cols = min(BROAD, all - first);
    convolve(left, right, sums, x + image * c * h * w, weight + top * c * kh * kw, s, rows, cols,
             first, width, oy * pool_stride, ox * pool_stride);
    for (int i = 0; i < rows; ++i)
      for (int l = 0; l < cols; l += VEC) {
        const vec_t v = *(local const vec_t*)sums_of(sums, i, l);
        if (l + VEC <= cols) *(local floats_t*)(line + i * all + first + l) = (floats_t){v};
        else
          for (int e = 0; l + e < cols; ++e) line[i * all + first + l + e] = ((float*)&v)[e];
      }
  }
  local float* tops = left;  // of a line's columns, over the lines of a pool
  for (int e = 0; e < rows * lines; ++e) {
    const int i = e / lines, py = e % lines;
    local const float* from = line + i * all + py * pool_stride * width;
    for (int j = 0; j < width; j += VEC) {
      vec_t most = 0.0f;
      for (int r = 0; r < pool; ++r) {
        const vec_t v = ((local const floats_t*)(from + r * width + j))->v + LOAD(bias, top + i);
        most = (most != most) | (v <= most) ? most : v;  // a NaN is the largest
      }
      *(local floats_t*)(tops + j) = (floats_t){most};
    }
    const long to = ((image * f + top + i) * oh + oy + py) * ow + ox;
    for (int px = 0; px < pools; ++px) {
      float most = 0.0f;
      for (int q = 0; q < pool; ++q) {
        const float v = tops[px * pool_stride + q];
        most = v > most || v != v ? v : most;
      }
      STORE(y, to + px, most);
    }
  }
}

// Pools too large to be kept: one of each of `tall` filters, block by block of what it has.
kernel void large_pools_cpu(global const storage_t* x, global const storage_t* weight,
                            global const storage_t* bias, global storage_t* y, long n, long c,
                            int h, int w, long f, int kh, int kw, int oh, int ow, int stride,
                            int padding, int pool, int pool_stride, int tall) {
  local float left[TALL * PITCH], tops[TALL];
  local wide_t right[BROAD * DEPTH / WIDE], sums[TALL * BROAD / WIDE];
  const shape_t s = {n, c, f, h, w, kh, kw, oh, ow, stride, padding};
  const int ox = get_global_id(1) % ow, oy = get_global_id(1) / ow, all = pool * pool;
  const long top = get_global_id(0) * tall, image = get_global_id(2);
  const int rows = min((long)tall, f - top);
  for (int i = 0; i < rows; ++i) tops[i] = 0.0f;
  for (int first = 0; first < all; first += BROAD) {
    const int cols = min(BROAD, all - first);
    convolve(left, right, sums, x + image * c * h * w, weight + top * c * kh * kw, s, rows, cols,
             first, pool, oy * pool_stride, ox * pool_stride);
    for (int i = 0; i < rows; ++i)
      for (int l = 0; l < cols; ++l) {
        const float v = *sums_of(sums, i, l) + LOAD(bias, top + i);
        tops[i] = v > tops[i] || v != v ? v : tops[i];
      }
  }
  for (int i = 0; i < rows; ++i)
    STORE(y, ((image * f + top + i) * oh + oy) * ow + ox, tops[i]);
}
#endif
"""


def conv2d_relu_maxpool(
    queue,
    program,
    x,
    weight,
    bias,
    y,
    *,
    n,
    c,
    h,
    w,
    f,
    kh,
    kw,
    oh,
    ow,
    stride,
    padding,
    window,
    pool_stride,
):
    if n * f * oh * ow == 0:
        return
    sizes = (n, c, *map(numpy.int32, (h, w)), f, *map(numpy.int32, (kh, kw, oh, ow)))
    steps = map(numpy.int32, (stride, padding, window, pool_stride))
    arguments = (x, weight, bias, y, *sizes, *steps)
    if program.cpu:
        pools, tall = pools_of(REGION, *map(int, (n, f, oh, ow, window, pool_stride)))
        if pools == (0, 0):
            size = (-(-f // tall), ow * oh, n)
            program.large_pools_cpu(queue, size, (1, 1, 1), *arguments, numpy.int32(tall))
            return
        area = n * f * oh * ow * min(window, pool_stride) ** 2
        queue = program.nearby(queue, area * (4 + c * kh * kw // 8))
        size = (-(-f // tall), -(-ow // pools[1]) * -(-oh // pools[0]), n)
        blocks = map(numpy.int32, (*pools, tall))
        program.conv2d_relu_maxpool_cpu(queue, size, (1, 1, 1), *arguments, *blocks)
        return
    if max(c * h * w, c * kh * kw) >= 1 << 31:
        raise ValueError(f"Got an image of {c} x {h} x {w}, expected below 2^31 elements")
    # As many pools side by side as a square of BN elements has, and as many below as then fit.
    pw = min(ow, max(1, (int(BN**0.5) - window) // pool_stride + 1))
    ph = min(oh, max(1, (BN // ((pw - 1) * pool_stride + window) - window) // pool_stride + 1))
    high = 32 if f <= 32 else 64
    groups = -(-ow // pw) * -(-oh // ph) * n * -(-f // high)
    pools = map(numpy.int32, (ph, pw))
    kernel = getattr(program, f"pooled_{high}")
    kernel(queue, (groups * 128,), (128,), *arguments, *pools)
