#include <stdlib.h>

#define PARALLEL_FROM 100000  // knob: 30000 100000 300000
#define KC 192                // knob: 96 192 384
#define FILTERS 256           // knob: 64 128 256
#define PIXELS 384            // knob: 192 384 768

// The product of weights (filters x elements) and patches (elements x output pixels of all images).
// A job is a block of FILTERS x PIXELS of it; its patches are gathered into cache, a slice of the
// elements at a time.

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

static void add_bias(const float* sums, float bias, scalar_t* y, int64_t n) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) store(y + i, load(sums + i) + bias);
  if (i < n) store(y + i, load(sums + i, n - i) + bias, n - i);
}

extern "C" int conv2d(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                      int64_t n, int64_t c, int64_t h, int64_t w, int64_t f, int64_t kh, int64_t kw,
                      int64_t oh, int64_t ow, int64_t stride, int64_t padding) {
  const Conv s{x, c, h, w, f, kh, kw, oh, ow, stride, padding};
  const int64_t plane = oh * ow, pixels = n * plane;
  if (pixels <= 0 || f == 0) return 0;
  float* packed = static_cast<float*>(malloc(size_t(s.rows * s.depth + 1) * sizeof(float)));
  if (!packed) return 1;
  const int64_t across = blocks(f, FILTERS), down = blocks(pixels, WIDTH);
#pragma omp parallel if (double(pixels) * f * s.depth >= PARALLEL_FROM)
  {
    pack_weight(s, weight, packed);
#pragma omp for schedule(dynamic)
    for (int64_t job = 0; job < across * down; ++job) {
      alignas(64) static thread_local float sums[FILTERS * WIDTH];
      const int64_t filter = job % across * FILTERS, filters = least(f - filter, FILTERS);
      const int64_t pixel = job / across * WIDTH, count = least(pixels - pixel, WIDTH);
      multiply(s, packed, filter, filters, pixel, count, sums, WIDTH);
      for (int64_t done = 0, run; done < count; done += run) {
        const int64_t image = (pixel + done) / plane, at = (pixel + done) % plane;
        run = least(count - done, plane - at);
        for (int64_t r = 0; r < filters; ++r)
          add_bias(sums + r * WIDTH + done, bias[filter + r],
                   y + (image * f + filter + r) * plane + at, run);
      }
    }
  }
  free(packed);
  return 0;
}
