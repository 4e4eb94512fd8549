// A convolution as a product of filters and patches, one column for each output pixel, which are
// numbered over all images. Patches exist only as the panels of one slice of their terms.
#pragma once
#include <portkern/product.h>
#include <portkern/windows.h>

namespace product {

// `oh` and `ow` are the convolution's own results.
struct Convolution {
  const scalar_t* x;
  int64_t c, h, w, kh, kw, oh, ow, stride, padding;

  int64_t depth() const { return c * kh * kw; }

  // Of single elements, side by side: then an image is one row.
  Convolution flat() const {
    if (kh * kw != 1 || stride != 1 || padding != 0) return *this;
    return {x, c, 1, h * w, 1, 1, 1, oh * ow, 1, 0};
  }
};

// Those elements of x that are `inside`; zeros in the other lanes. x has two elements at least.
#if defined(__AVX512F__)
PORTKERN_INLINE vec elements(const float* x, ivec at, ivec inside) {
  const __mmask16 mask = _mm512_test_epi32_mask(as<__m512i>(inside), as<__m512i>(inside));
  return as<vec>(_mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, as<__m512i>(at), x, 4));
}

template <typename Half>
PORTKERN_INLINE vec elements(const Half* x, ivec at, ivec inside) {
  // Each with the one before it, as 32 bits; the first with the one behind it.
  const ivec zero = {}, before = at > 0 ? at - 1 : zero;
  const __mmask16 mask = _mm512_test_epi32_mask(as<__m512i>(inside), as<__m512i>(inside));
  const uvec two = as<uvec>(
      _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), mask, as<__m512i>(before), x, 2));
  return to_float(narrow(at > 0 ? two >> 16 : two & 0xffffu), Half());
}
#else
template <typename T>
PORTKERN_INLINE vec elements(const T* x, ivec at, ivec inside) {
  float lanes[LANES];
  for (int i = 0; i < LANES; ++i) lanes[i] = inside[i] ? float(x[at[i]]) : 0.0f;
  return load(lanes);
}
#endif

// Those elements of a row whose bits are set; zeros in the other lanes, which are not read.
#if defined(__AVX512BW__) && defined(__AVX512VL__)
PORTKERN_INLINE vec those(const float* from, uint64_t bits) {
  return as<vec>(_mm512_maskz_loadu_ps(__mmask16(bits), from));
}

template <typename Half>
PORTKERN_INLINE vec those(const Half* from, uint64_t bits) {
  return to_float(as<hvec>(_mm256_maskz_loadu_epi16(__mmask16(bits), from)), Half());
}
#else
template <typename T>
PORTKERN_INLINE vec those(const T* from, uint64_t bits) {
  float lanes[LANES];
  for (int64_t i = 0; i < LANES; ++i) lanes[i] = bits >> i & 1u ? float(from[i]) : 0.0f;
  return load(lanes);
}
#endif

// An element of a filter. It moves to the next ones of its row without divisions, which would take
// as long as many products.
struct Element {
  int64_t channel, ky, kx;

  Element(const Convolution& s, int64_t term)
      : channel(term / s.kw / s.kh), ky(term / s.kw % s.kh), kx(term % s.kw) {}

  void move(const Convolution& s, int64_t count) {
    if ((kx += count) < s.kw) return;
    kx = 0;
    if (++ky == s.kh) ky = 0, ++channel;
  }

  // How far what it sees lies behind what the first element of the filter sees.
  int64_t offset(const Convolution& s) const { return (channel * s.h + ky) * s.w + kx; }
};

// What some rows of results see of a channel, as floats: padding becomes zeros there, and each
// `stride`-th element of a row a row of its own. Results side by side then see elements side by side,
// whichever element of the filter they meet, and there are no bounds to look at.
struct Planes {
  Convolution s;
  int64_t top, side, high, wide, phases;

  // Of `rows` rows of results from row `top` on, `columns` of each from column `side` on.
  Planes(const Convolution& s, int64_t top, int64_t side, int64_t rows, int64_t columns)
      : s(s), top(top), side(side), high(rows + (s.kh - 1) / s.stride),
        wide(columns + (s.kw - 1) / s.stride), phases(least(s.stride, s.kw)) {}

  // Floats of a channel.
  int64_t size() const { return least(s.stride, s.kh) * phases * high * wide; }

  // Where the first result finds what it sees with an element of the filter.
  int64_t place(int64_t ky, int64_t kx) const {
    if (s.stride == 1) return ky * wide + kx;  // divisions take as long as many products
    const int64_t phase = ky % s.stride * phases + kx % s.stride;
    return (phase * high + ky / s.stride) * wide + kx / s.stride;
  }

  // A channel of an image.
  void copy(const scalar_t* x, float* to) const {
    for (int64_t py = 0; py < least(s.stride, s.kh); ++py)
      for (int64_t px = 0; px < phases; ++px) {
        // The first column's place in the image, and which columns lie within it.
        const int64_t at = side * s.stride + px - s.padding;
        const int64_t left = at < 0 ? least(blocks(-at, s.stride), wide) : 0;
        const int64_t right = at < s.w ? least(blocks(s.w - at, s.stride), wide) : 0;
        for (int64_t i = 0; i < high; ++i, to += wide) {
          const int64_t y = (top + i) * s.stride + py - s.padding;
          if (y < 0 || y >= s.h) {
            for (int64_t j = 0; j < wide; ++j) to[j] = 0.0f;
            continue;
          }
          for (int64_t j = 0; j < left; ++j) to[j] = 0.0f;
          copy_every(s.stride, x + y * s.w + at + s.stride * left, right - left, to + left);
          for (int64_t j = right > left ? right : left; j < wide; ++j) to[j] = 0.0f;
        }
      }
  }
};

// Pixels side by side in one row of results and in one panel, and where the planes have what the
// first element of a filter sees of them.
struct Run {
  int64_t first, count, from;
};

// The patches of `count` <= COLS pixels from `pixel` on. What they see of a channel is copied into
// planes first, once for all elements of a filter. Of a filter of one element, without padding and
// steps, all of it lies as in planes, and is not copied. Where rows of results are short and their
// steps long, copies would be more work than to take each row of a filter where it lies.
class Patches {
 public:
  // At most `deepest` terms at once.
  Patches(const Convolution& conv, int64_t pixel, int64_t count, int64_t deepest)
      : s(conv), deepest(deepest), layout(conv, 0, 0, 0, 0) {
    const int64_t size = s.oh * s.ow, last = pixel + count - 1;
    int64_t oy = pixel % size / s.ow, ox = pixel % s.ow, index = 0;
    image = pixel / size, images = last / size - image + 1;
    // What is wanted of an image: some rows of results, of a single row some of it; of several
    // images, all.
    const int64_t top = images > 1 ? 0 : oy;
    const int64_t rows = images > 1 ? s.oh : last % size / s.ow - top + 1;
    const int64_t side = images * rows > 1 ? 0 : ox;
    layout = Planes(s, top, side, rows, images * rows > 1 ? s.ow : count);
    one = layout.size(), channel = images * one;
    in_place = s.kh * s.kw == 1 && s.stride == 1 && s.padding == 0;
    if (in_place) layout.wide = s.w, channel = s.h * s.w, one = s.c * channel;
    turned = s.stride > 1 && s.ow < LANES && s.h * s.w > 1 && images * s.c * s.h * s.w < INT32_MAX;
    if (turned) {
      locate(oy, ox, count);
      return;
    }
    const int64_t wide = layout.wide;
    int64_t from = (oy - top) * wide + ox - side;
    for (int64_t done = 0, n; done < count; done += n) {
      if (done % NR == 0) panels[done / NR] = index;
      n = least(least(count - done, s.ow - ox), NR - done % NR);
      runs[index++] = {done % NR, n, from};
      ox += n, from += n;
      if (ox < s.ow) continue;
      ox = 0, from += wide - s.ow;
      if (++oy == s.oh) oy = 0, from += one - rows * wide;
    }
    panels[blocks(count, NR)] = index;
  }

  // Floats of `planes`; vectors are read beyond the last.
  int64_t room() const {
    if (turned || in_place) return LANES;
    const int64_t most = least(s.c, deepest / (s.kh * s.kw) + 2);
    return most * images * one + LANES;
  }

  // Whole channels, where a slice has room for some.
  int64_t slice(int64_t most) const {
    const int64_t some = s.kh * s.kw * 2;
    return some <= most ? most / some * some : most;
  }

  void prepare(int64_t first, int64_t depth) const {
    if (turned) return;
    Element e(s, first);
    const int64_t size = s.kh * s.kw, start = e.channel;
    for (int64_t i = 0; i < depth; ++i, e.move(s, 1))
      offsets[i] = (e.channel - start) * channel + layout.place(e.ky, e.kx);
    from = s.x + ((image * s.c + start) * s.h + layout.top) * s.w + layout.side;
    if (in_place) return;
    float* to = planes;
    for (int64_t i = start; i * size < first + depth; ++i)
      for (int64_t n = image; n < image + images; ++n, to += one)
        layout.copy(s.x + (n * s.c + i) * s.h * s.w, to);
  }

  template <bool PAIRS, int V>
  void pack(int64_t first, int64_t depth, int64_t col, int64_t, float* to) const {
    if (turned) return turn<PAIRS, V>(first, depth, col, to);
    if (!in_place)
      return lines<PAIRS, V>(planes, depth, col, to, [](const float* p, int64_t) { return load(p); });
    const scalar_t* const end = s.x + (image + images) * one;
    lines<PAIRS, V>(from, depth, col, to, [end](const scalar_t* p, int64_t count) {
      return p + LANES <= end ? load(p) : load(p, count);
    });
  }

  float* planes = nullptr;

 private:
  const Convolution s;
  const int64_t deepest;
  Planes layout;
  bool turned, in_place;
  // Of each pixel: the first row and column that it sees, and their element, counted from the first
  // image's; of those after the last, rows that no image has.
  int32_t ys[COLS + NR], xs[COLS + NR], places[COLS + NR];
  int64_t image, images;
  int64_t one, channel;  // from an image to the next, and from a channel
  int64_t panels[COLS / NR + 2];
  Run runs[COLS + COLS / NR + 2];
  mutable int64_t offsets[DEEPEST];
  mutable const scalar_t* from;

  // Of each term a line of what the pixels see. Whole vectors: what is too much, the next run or the
  // next line replaces.
  template <bool PAIRS, int V, typename T, class Load>
  PORTKERN_METHOD void lines(const T* at, int64_t depth, int64_t col, float* to, Load some) const {
    const Run *begin = runs + panels[col / NR], *end = runs + panels[col / NR + 1];
    for (int64_t i = 0; i < depth; i += STEP<PAIRS>, to += V * LANES) {
      const T *even = at + offsets[i], *odd = at + offsets[i + 1 < depth ? i + 1 : i];
      for (const Run* run = begin; run < end; ++run)
        for (int64_t j = 0; j < run->count; j += LANES) {
          const int64_t place = run->from + j, left = run->count - j;
          const vec one = some(even + place, left);
          const vec two = PAIRS && i + 1 < depth ? some(odd + place, left) : vec{};
          store(to + run->first + j, PAIRS ? pair(one, two) : one);
        }
    }
  }

  void locate(int64_t oy, int64_t ox, int64_t count) {
    for (int64_t i = 0, n = 0; i < count + NR; ++i) {
      const int64_t y = oy * s.stride - s.padding, x = ox * s.stride - s.padding;
      ys[i] = i < count ? int32_t(y) : INT32_MIN / 2;
      xs[i] = int32_t(x);
      places[i] = int32_t(n * s.c * s.h * s.w + y * s.w + x);
      if (i >= count || ++ox < s.ow) continue;
      ox = 0;
      if (++oy == s.oh) oy = 0, ++n;
    }
  }

  template <bool PAIRS, int V>
  void turn(int64_t first, int64_t depth, int64_t col, float* to) const {
    for (int v = 0; v < V; ++v, col += LANES, to += LANES) {
      if constexpr (!PAIRS) {
        terms(first, depth, col, to, V * LANES);
      } else {
        alignas(64) float lines[(DEEPEST + 1) * LANES];
        terms(first, depth, col, lines, LANES);
        if (depth % 2) store(lines + depth * LANES, vec{});
        for (int64_t i = 0; i < depth; i += 2)
          store(to + i / 2 * V * LANES,
                pair(load(lines + i * LANES), load(lines + (i + 1) * LANES)));
      }
    }
  }

  // What LANES pixels see of each term, in lines `stride` apart: a row of the filter at a time,
  // which is a run of memory for each pixel, or a single element.
  void terms(int64_t first, int64_t depth, int64_t col, float* to, int64_t stride) const {
    Element e(s, first);
    if (s.kw == 1) {
      for (int64_t i = 0; i < depth; ++i, e.move(s, 1)) store(to + i * stride, seen(e, col));
      return;
    }
    const scalar_t* pixels[LANES];
    uint64_t within[LANES];  // the columns of the filter that see the image
    for (int i = 0; i < LANES; ++i) {
      pixels[i] = s.x + image * s.c * s.h * s.w + places[col + i];
      const int64_t x = xs[col + i], left = x < 0 ? least(-x, s.kw) : 0;
      const int64_t right = x + s.kw > s.w ? s.w - x : s.kw;
      within[i] = right > left ? bits(right) & ~bits(left) : 0;
    }
    for (int64_t left = depth, n; left > 0; left -= n, to += n * stride, e.move(s, n)) {
      n = least(least(s.kw - e.kx, LANES), left);
      vec rows[LANES];
#pragma GCC unroll 16
      for (int r = 0; r < LANES; ++r) {
        const uint64_t seen = uint64_t(ys[col + r] + e.ky) < uint64_t(s.h) ? within[r] : 0;
        rows[r] = those(pixels[r] + e.offset(s), seen >> e.kx & bits(n));
      }
      if (n > LANES / 2) store_first<LANES>(rows, n, to, stride);
      else store_first<LANES / 2>(rows, n, to, stride);
    }
  }

  static uint64_t bits(int64_t n) { return n < 64 ? (1ull << n) - 1 : ~0ull; }

  // The first n <= W columns of the rows.
  template <int W>
  static PORTKERN_METHOD void store_first(vec (&rows)[LANES], int64_t n, float* to,
                                          int64_t stride) {
    transpose(rows);  // compilers leave out what columns after W would take
#pragma GCC unroll 16
    for (int d = 0; d < W; ++d)
      if (d < n) store(to + d * stride, rows[d]);
  }

  // What an element of a filter sees at LANES pixels.
  PORTKERN_METHOD vec seen(const Element& e, int64_t col) const {
    const ivec y = some(ys + col) + int32_t(e.ky), x = some(xs + col) + int32_t(e.kx);
    const ivec inside = (as<uvec>(y) < uint32_t(s.h)) & (as<uvec>(x) < uint32_t(s.w));
    const ivec at = some(places + col) + int32_t(e.offset(s));
    return elements(s.x + image * s.c * s.h * s.w, at, inside);
  }

  static PORTKERN_METHOD ivec some(const int32_t* from) {
    ivec v;
    memcpy(&v, from, sizeof(v));
    return v;
  }
};

}  // namespace product
