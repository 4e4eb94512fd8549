import numpy

BM = 64  # knob: 64 128
BN = 128  # knob: 64 128
BK = 16  # knob: 8 16
FILTERS = 96  # knob: 48 96
DEPTH = 128  # knob: 64 128 256
ROWS = 6

SOURCE = r"""
#define ACROSS (BN / 8)
#define ITEMS (BM / 8 * ACROSS)
#define NOWHERE (-(1 << 29))  // a coordinate that no image has

// The product of the filters, f x (c kh kw), and the windows below them, (c kh kw) x (n oh ow),
// that no memory holds: each group gathers what its tile of BM filters and BN windows needs. A
// work-item makes 8 x 8, in quads that lie half a tile apart.
kernel void conv2d(global const storage_t* x, global const storage_t* weight,
                   global const storage_t* bias, global storage_t* y, long n, long c, int h, int w,
                   long f, int kh, int kw, int oh, int ow, int stride, int padding) {
  local float4 filters[BK][BM / 4 + 1], windows[BK][BN / 4];
  local int tops[BN], lefts[BN], downs[BK], rights[BK];  // of windows; of filters' elements
  local long origins[BN], targets[BN], steps[BK];        // in x and y; from a window's corner
  const int me = get_local_id(0), column = me % ACROSS, row = me / ACROSS;
  const long across = (n * oh * ow + BN - 1) / BN, tile = get_group_id(0);
  const long first = tile / across * BM, k = c * kh * kw;
  for (int j = me; j < BN; j += ITEMS) {
    const long e = tile % across * BN + j, image = e / (oh * (long)ow);
    const int pixel = e - image * oh * ow, py = pixel / ow * stride - padding;
    const int px = pixel % ow * stride - padding;
    tops[j] = image < n ? py : NOWHERE;
    lefts[j] = px;
    origins[j] = image * c * h * w + py * (long)w + px;
    targets[j] = image < n ? image * f * oh * ow + pixel : -1;
  }
  float4 sums[8][2];
  for (int i = 0; i < 8; ++i) sums[i][0] = sums[i][1] = 0.0f;
  for (long p = 0; p < k; p += BK) {
    for (int q = me; q < BK; q += ITEMS) {
      const int channel = (p + q) / (kh * kw), tap = (p + q) % (kh * kw);
      downs[q] = p + q < k ? tap / kw : NOWHERE;
      rights[q] = tap % kw;
      steps[q] = ((long)channel * h + tap / kw) * w + tap % kw;
    }
    for (int e = me; e < BM * BK; e += ITEMS) {
      const int i = e / BK, q = e % BK;
      const bool real = first + i < f && p + q < k;
      ((local float*)filters[q])[i] = real ? LOAD(weight, (first + i) * k + p + q) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = me; e < BK * BN; e += ITEMS) {
      const int q = e / BN, j = e % BN, iy = tops[j] + downs[q], ix = lefts[j] + rights[q];
      const bool inside = iy >= 0 && iy < h && ix >= 0 && ix < w;
      ((local float*)windows[q])[j] = inside ? LOAD(x, origins[j] + steps[q]) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int q = 0; q < BK; ++q) {
      float a[8];
      vstore8((float8)(filters[q][row], filters[q][row + BM / 8]), 0, a);
      for (int i = 0; i < 8; ++i) {
        sums[i][0] = fma(a[i], windows[q][column], sums[i][0]);
        sums[i][1] = fma(a[i], windows[q][column + ACROSS], sums[i][1]);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < 8; ++i) {
    const long filter = first + row * 4 + i % 4 + i / 4 * (BM / 2);
    if (filter >= f) continue;
    float out[8];
    vstore8((float8)(sums[i][0], sums[i][1]), 0, out);
    for (int j = 0; j < 8; ++j) {
      const long to = targets[column * 4 + j % 4 + j / 4 * (BN / 2)];
      if (to >= 0) STORE(y, to + filter * oh * ow, out[j] + LOAD(bias, filter));
    }
  }
}

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
    if n * f * oh * ow == 0:
        return
    small = numpy.int32
    sizes = (n, c, small(h), small(w), f, small(kh), small(kw), small(oh), small(ow))
    arguments = (x, weight, bias, y, *sizes, small(stride), small(padding))
    if program.cpu:
        size = (-(-ow // (2 * program.vec)), oh, n * -(-f // FILTERS))
        program.conv2d_cpu(queue, size, (1, 1, 1), *arguments)
    else:
        items = (BM // 8) * (BN // 8)
        tiles = -(-(n * oh * ow) // BN) * -(-f // BM)
        program.conv2d(queue, (tiles * items,), (items,), *arguments)
