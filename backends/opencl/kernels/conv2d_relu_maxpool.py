import numpy

BN = 128
FILTERS = 96  # knob: 48 96
DEPTH = 128  # knob: 64 128 256
ROWS = 6

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

// On a CPU: the elements of a line of y that two vectors of the convolution reach, of FILTERS
// filters, per work-item; larger pools take more vectors, one after the other.
kernel void conv2d_relu_maxpool_cpu(global const storage_t* x, global const storage_t* weight,
                                    global const storage_t* bias, global storage_t* y, long n,
                                    long c, int h, int w, long f, int kh, int kw, int oh, int ow,
                                    int stride, int padding, int pool, int pool_stride, int pw) {
  const int ox = get_global_id(0) * pw, oy = get_global_id(1), reach = min(pw, ow - ox);
  const long blocks = (f + FILTERS - 1) / FILTERS, image = get_global_id(2) / blocks;
  const long first = get_global_id(2) % blocks * FILTERS;
  const int count = min((long)FILTERS, f - first);
  for (int at = 0; at < (reach - 1) * pool_stride + pool; at += 2 * VEC) {
    vec_t most[FILTERS][2], sums[FILTERS][2];
    for (int i = 0; i < FILTERS; ++i) most[i][0] = most[i][1] = 0.0f;
    for (int line = oy * pool_stride; line < oy * pool_stride + pool; ++line) {
      for (int i = 0; i < FILTERS; ++i)
        sums[i][0] = sums[i][1] = i < count ? LOAD(bias, first + i) : 0;
      convolve(x + image * c * h * w, weight + first * c * kh * kw, count, c, h, w, kh, kw,
               line * stride - padding, (ox * pool_stride + at) * stride - padding, stride, sums);
      for (int i = 0; i < count; ++i)
        for (int v = 0; v < 2; ++v) most[i][v] = sums[i][v] > most[i][v] ? sums[i][v] : most[i][v];
    }
    for (int i = 0; i < count; ++i)
      for (int j = 0; j < reach; ++j) {
        const long to = ((image * f + first + i) * oh + oy) * ow + ox + j;
        const int from = max(j * pool_stride - at, 0);
        const int end = min(j * pool_stride + pool - at, 2 * VEC);
        float largest = at == 0 ? 0.0f : LOAD(y, to);
        for (int l = from; l < end; ++l) largest = fmax(largest, ((const float*)most[i])[l]);
        STORE(y, to, largest);
      }
  }
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
        pooled = n * f * oh * ow * window * window
        queue = program.nearby(queue, pooled * c * kh * kw // 8)
        pw = numpy.int32(max(1, (2 * program.vec - window) // pool_stride + 1))
        size = (-(-ow // pw), oh, n * -(-f // FILTERS))
        program.conv2d_relu_maxpool_cpu(queue, size, (1, 1, 1), *arguments, pw)
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
