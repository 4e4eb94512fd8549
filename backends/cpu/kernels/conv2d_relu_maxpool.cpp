#include <stdlib.h>

#define PARALLEL_FROM 100000  // knob: 30000 100000 300000
#define KC 192                // knob: 96 192 384
#define FILTERS 192           // knob: 64 96 192
#define PIXELS 384            // knob: 192 384 768
#define ROOM 262144           // knob: 131072 262144 524288

// A job is a band of one image for some filters: as many rows of the convolution as ROOM floats
// hold, which are pooled before they leave the cache. The convolution is the product of weights
// (filters x elements) and patches (elements x pixels), gathered into cache block by block.

// The registers of one micro-tile: MR filters of NV vectors of pixels.
#if defined(__AVX512F__) || defined(__ARM_NEON)
enum { MR = 8, NV = 3 };
#elif defined(__AVX__)
enum { MR = 4, NV = 3 };
#else
enum { MR = 4, NV = 2 };
#endif
enum { NR = NV * LANES, WIDTH = PIXELS / NR * NR };

PORTKERN_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
PORTKERN_INLINE int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

// `oh` and `ow` are the convolution's own.
struct Conv {
  const scalar_t* x;
  int64_t c, h, w, f, kh, kw, oh, ow, stride, padding;
  int64_t depth = c * kh * kw;
  int64_t slice = depth ? blocks(depth, blocks(depth, KC)) : 1;  // equal ones, no short rest
  int64_t rows = blocks(f, MR) * MR;
};

// For each slice of the depth, panels of MR filters, element by element.
static void pack_weight(const Conv& s, const scalar_t* weight, float* packed) {
#pragma omp for schedule(static)
  for (int64_t i = 0; i < s.rows; i += MR)
    for (int64_t p = 0; p < s.depth; ++p) {
      const int64_t start = p / s.slice * s.slice, depth = least(s.depth - start, s.slice);
      float* to = packed + start * s.rows + i * depth + (p - start) * MR;
      for (int64_t r = 0; r < MR; ++r)
        to[r] = i + r < s.f ? float(weight[(i + r) * s.depth + p]) : 0.0f;
    }
}

// What element p of a filter sees at `count` output pixels, which are numbered over all images.
static void gather(const Conv& s, int64_t p, int64_t pixel, int64_t count, float* to) {
  const int64_t kx = p % s.kw, ky = p / s.kw % s.kh, channel = p / s.kw / s.kh;
  int64_t image = pixel / s.ow / s.oh, oy = pixel / s.ow % s.oh, ox = pixel % s.ow;
  // The columns that see the image; the others see its padding.
  const int64_t low = kx < s.padding ? blocks(s.padding - kx, s.stride) : 0;
  const int64_t high = kx < s.w + s.padding ? (s.w - 1 + s.padding - kx) / s.stride + 1 : 0;
  for (int64_t run; count > 0; count -= run, to += run, ox = 0) {
    run = least(count, s.ow - ox);
    memset(to, 0, size_t(run) * sizeof(float));
    const int64_t y = oy * s.stride + ky - s.padding;
    const int64_t left = low > ox ? low - ox : 0;
    const int64_t right = y < 0 || y >= s.h ? 0 : least(run, high - ox);
    const scalar_t* from = s.x + ((image * s.c + channel) * s.h + y) * s.w + kx - s.padding;
    if (s.stride == 2)  // compilers have shuffles for it
      for (int64_t i = left; i < right; ++i) to[i] = from[(ox + i) * 2];
    else
      for (int64_t i = left; i < right; ++i) to[i] = from[(ox + i) * s.stride];
    if (++oy == s.oh) oy = 0, ++image;
  }
}

// to = or += a panel of weights times a panel of patches.
static void micro(const float* a, const float* b, float* to, int64_t depth, int64_t stride,
                  bool first) {
  vec c[MR][NV] = {};
  for (int64_t p = 0; p < depth; ++p, a += MR, b += NR)
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) c[r][v] += a[r] * load(b + v * LANES);
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      float* at = to + r * stride + v * LANES;
      store(at, first ? c[r][v] : load(at) + c[r][v]);
    }
}

// The sums of `filters` filters, a row for each, at `count` <= WIDTH pixels.
static void multiply(const Conv& s, const float* weight, int64_t filter, int64_t filters,
                     int64_t pixel, int64_t count, float* sums, int64_t stride) {
  alignas(64) static thread_local float patches[WIDTH * KC], line[WIDTH];
  for (int64_t i = count; i < WIDTH; ++i) line[i] = 0.0f;
  for (int64_t p = 0; p == 0 || p < s.depth; p += s.slice) {  // once even without channels
    const int64_t depth = least(s.depth - p, s.slice);
    for (int64_t d = 0; d < depth; ++d) {
      gather(s, p + d, pixel, count, line);
      for (int64_t j = 0; j < count; j += NR)
        for (int v = 0; v < NV; ++v)
          store(patches + j * depth + d * NR + v * LANES, load(line + j + v * LANES));
    }
    const float* a = weight + p * s.rows + filter * depth;
    for (int64_t j = 0; j < count; j += NR)
      for (int64_t r = 0; r < filters; r += MR)
        micro(a + r * depth, patches + j * depth, sums + r * stride + j, depth, stride, p == 0);
  }
}

// Rows of outputs of one filter. Bias and rectifier come last: they do not change which element of
// a window is the largest.
static void pool(const float* sums, float bias, scalar_t* y, float* line, int64_t width,
                 int64_t rows, int64_t ow, int64_t window, int64_t stride) {
  for (int64_t row = 0; row < rows; ++row, sums += stride * width, y += ow) {
    for (int64_t i = 0; i < width; i += LANES) {
      vec most = load(sums + i);
      for (int64_t k = 1; k < window; ++k) most = max(load(sums + k * width + i), most);
      store(line + i, most);
    }
    for (int64_t i = 0; i < ow; ++i) {
      float most = line[i * stride];
      for (int64_t k = 1; k < window; ++k) {
        const float next = line[i * stride + k];
        most = next > most ? next : most;
      }
      y[i] = most + bias > 0.0f ? most + bias : 0.0f;
    }
  }
}

extern "C" int conv2d_relu_maxpool(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                                   scalar_t* y, int64_t n, int64_t c, int64_t h, int64_t w,
                                   int64_t f, int64_t kh, int64_t kw, int64_t oh, int64_t ow,
                                   int64_t stride, int64_t padding, int64_t window,
                                   int64_t pool_stride) {
  if (n == 0 || f == 0 || oh <= 0 || ow <= 0) return 0;
  const int64_t high = (h + 2 * padding - kh) / stride + 1;
  const int64_t wide = (w + 2 * padding - kw) / stride + 1;
  const Conv s{x, c, h, w, f, kh, kw, high, wide, stride, padding};
  const int64_t share = least(s.rows, FILTERS), across = blocks(f, share);
  const int64_t fit = ROOM / (share * wide);
  const int64_t band = least(oh, fit > window ? (fit - window) / pool_stride + 1 : 1);
  const int64_t bands = blocks(oh, band);
  const int64_t row = blocks(((band - 1) * pool_stride + window) * wide, NR) * NR;
  const size_t floats = size_t(share * row + wide + 2 * LANES);  // sums, and a line while pooling
  float* packed = static_cast<float*>(malloc(size_t(s.rows * s.depth + 1) * sizeof(float)));
  if (!packed) return 1;
  int failed = 0;
#pragma omp parallel if (double(n) * high * wide * f * s.depth >= PARALLEL_FROM)
  {
    float* sums = static_cast<float*>(malloc(floats * sizeof(float)));
    pack_weight(s, weight, packed);
#pragma omp for schedule(dynamic) reduction(| : failed)
    for (int64_t job = 0; job < n * bands * across; ++job) {
      failed |= !sums;
      if (failed) continue;
      const int64_t filter = job % across * share, filters = least(f - filter, share);
      const int64_t image = job / across / bands, oy = job / across % bands * band;
      const int64_t rows = least(oh - oy, band), first = (image * high + oy * pool_stride) * wide;
      const int64_t pixels = ((rows - 1) * pool_stride + window) * wide;
      for (int64_t j = 0; j < pixels; j += WIDTH)
        multiply(s, packed, filter, filters, first + j, least(pixels - j, WIDTH), sums + j, row);
      for (int64_t r = 0; r < filters; ++r)
        pool(sums + r * row, bias[filter + r], y + ((image * f + filter + r) * oh + oy) * ow,
             sums + share * row + LANES, wide, rows, ow, window, pool_stride);
    }
    free(sums);
  }
  free(packed);
  return failed;
}
