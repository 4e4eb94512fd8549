import numpy

BM = 32  # knob: 16 32
BN = 128  # knob: 64 128
BK = 16  # knob: 8 16
FILTERS = 96  # knob: 48 96
DEPTH = 128  # knob: 64 128 256
ROWS = 6

SOURCE = r"""
#define ACROSS (BN / 8)
#define ITEMS (BM / 4 * ACROSS)
#define NOWHERE (-(1 << 29))  // a coordinate that no image has

// The convolution is a product of the filters, f x (c kh kw), and the windows below them. A group
// makes it for BM filters and all that `ph` x `pw` pools read, BN elements at a time (once, unless
// pools are large), a work-item 4 x 8 of them; then it takes the maxima from local memory.
kernel void conv2d_relu_maxpool(global const storage_t* x, global const storage_t* weight,
                                global const storage_t* bias, global storage_t* y, long n, long c,
                                int h, int w, long f, int kh, int kw, int oh, int ow, int stride,
                                int padding, int pool, int pool_stride, int ph, int pw) {
  local float4 filters[BK][BM / 4 + 1], windows[BK][BN / 4], tile[BM][BN / 4];
  local int tops[BN], lefts[BN], downs[BK], rights[BK];  // of windows; of filters' elements
  local long origins[BN], steps[BK];                     // from a plane; from a window's corner
  const int me = get_local_id(0), column = me % ACROSS, row = me / ACROSS;
  const long across = (ow + pw - 1) / pw, down = (oh + ph - 1) / ph, group = get_group_id(0);
  const int pool_left = group % across * pw, pool_top = group / across % down * ph;
  const long image = group / across / down % n, first = group / across / down / n * BM;
  const long k = c * kh * kw;
  const int width = (pw - 1) * pool_stride + pool, height = (ph - 1) * pool_stride + pool;
  for (int base = 0; base < width * height; base += BN) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = me; j < BN; j += ITEMS) {
      const int cy = pool_top * pool_stride + (base + j) / width;
      const int cx = pool_left * pool_stride + (base + j) % width;
      tops[j] = base + j < width * height ? cy * stride - padding : NOWHERE;
      lefts[j] = cx * stride - padding;
      origins[j] = image * c * h * w + (cy * (long)stride - padding) * w + lefts[j];
    }
    float4 sums[4][2];
    for (int i = 0; i < 4; ++i) sums[i][0] = sums[i][1] = 0.0f;
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
        float a[4];
        vstore4(filters[q][row], 0, a);
        for (int i = 0; i < 4; ++i) {
          sums[i][0] = fma(a[i], windows[q][column], sums[i][0]);
          sums[i][1] = fma(a[i], windows[q][column + ACROSS], sums[i][1]);
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int i = 0; i < 4; ++i) {
      const float b = LOAD(bias, min(first + row * 4 + i, f - 1));
      tile[row * 4 + i][column] = sums[i][0] + b;
      tile[row * 4 + i][column + ACROSS] = sums[i][1] + b;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = me; e < BM * ph * pw; e += ITEMS) {
      const int i = e / (ph * pw), py = e % (ph * pw) / pw, px = e % pw;
      const int oy = pool_top + py, ox = pool_left + px;
      if (first + i >= f || oy >= oh || ox >= ow) continue;
      const long to = (((image * f) + first + i) * oh + oy) * ow + ox;
      float most = base == 0 ? 0.0f : LOAD(y, to);  // rounding keeps the order
      for (int r = 0; r < pool; ++r)
        for (int s = 0; s < pool; ++s) {
          const int j = (py * pool_stride + r) * width + px * pool_stride + s - base;
          if (j >= 0 && j < BN) most = fmax(most, ((local const float*)tile[i])[j]);
        }
      STORE(y, to, most);
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
        pw = numpy.int32(max(1, (2 * program.vec - window) // pool_stride + 1))
        size = (-(-ow // pw), oh, n * -(-f // FILTERS))
        program.conv2d_relu_maxpool_cpu(queue, size, (1, 1, 1), *arguments, pw)
        return
    # As many pools side by side as a square of BN elements has, and as many below as then fit.
    pw = min(ow, max(1, (int(BN**0.5) - window) // pool_stride + 1))
    ph = min(oh, max(1, (BN // ((pw - 1) * pool_stride + window) - window) // pool_stride + 1))
    groups = -(-ow // pw) * -(-oh // ph) * n * -(-f // BM)
    items = (BM // 4) * (BN // 8)
    pools = map(numpy.int32, (ph, pw))
    program.conv2d_relu_maxpool(queue, (groups * items,), (items,), *arguments, *pools)
