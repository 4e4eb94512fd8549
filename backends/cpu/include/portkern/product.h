// Matrix products block by block: panels of both operands are copied into cache, and tiles of the
// result stay in registers. A kernel says what the right operand and the result are (`Right`,
// `Out`); threads take whole blocks and pack what they need, so that none waits for another.
#pragma once

#include <stdlib.h>

#include <type_traits>

#if defined(_OPENMP) && __has_include(<omp.h>)
#include <omp.h>
#define PORTKERN_THREADS omp_get_max_threads()
#else
#define PORTKERN_THREADS 1
#endif
#if defined(__AVX512F__)
#include <cpuid.h>
#endif
#if defined(__AVX512F__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#define PORTKERN_TILES
#endif

#define PORTKERN_METHOD inline __attribute__((always_inline))

namespace product {

// The registers of one tile: up to MR rows of NV vectors, and room for a row of the right operand
// and one element of the left.
#if defined(__AVX512F__)
enum { MR = 12, NV = 2 };
#elif defined(__AVX__)
enum { MR = 6, NV = 2 };
#elif defined(__ARM_NEON)
enum { MR = 8, NV = 3 };
#else
enum { MR = 4, NV = 2 };
#endif
enum { NR = NV * LANES, TALL = (MR + LANES - 1) / LANES * LANES };

// Terms that are added in registers before they join the sums. More would be hardly faster, and
// the rounding errors of a long chain would exceed the framework's.
enum { KC = 128, DEEPEST = 8 * KC };

PORTKERN_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
PORTKERN_INLINE int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

PORTKERN_INLINE int64_t threads() { return PORTKERN_THREADS; }

template <typename T>
inline T* workspace(int64_t count) {
  return static_cast<T*>(aligned_alloc(64, size_t(count * int64_t(sizeof(T)) + 64) / 64 * 64));
}

typedef int8_t bvec __attribute__((vector_size(LANES)));

// Weights of int8 are as good as those of a half: exact.
template <typename T>
PORTKERN_INLINE vec floats(const T* p) { return load(p); }
template <typename T>
PORTKERN_INLINE vec floats(const T* p, int64_t n) { return load(p, n); }

PORTKERN_INLINE vec floats(const int8_t* p) {
  bvec v;
  memcpy(&v, p, sizeof(v));
#if defined(__AVX512F__)
  return as<vec>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(as<__m128i>(v))));
#elif defined(__AVX2__)
  int64_t bytes;
  memcpy(&bytes, &v, sizeof(bytes));
  return as<vec>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(bytes))));
#else
  return __builtin_convertvector(v, vec);
#endif
}

PORTKERN_INLINE vec floats(const int8_t* p, int64_t n) {
  int8_t lanes[LANES] = {};
  memcpy(lanes, p, size_t(n));
  return floats(lanes);
}

// ---- Two terms in one lane, where the CPU multiplies bfloat16 itself: twice as many products. The
// target's flags do not say whether it does, so it is asked when the kernel runs.

#if defined(PORTKERN_BFLOAT16)
constexpr bool BFLOAT16 = true;
#else
constexpr bool BFLOAT16 = false;
#endif

#if defined(__AVX512F__)
inline bool has_pairs() {
  static const bool found = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1u);
  }();
  return found;
}
#endif

// Whether it also multiplies tiles of them (AMX): 16 times as many products at once. Linux makes room
// for their registers when a process asks (Documentation/arch/x86/xstate.rst).
inline bool has_tiles() {
#if defined(PORTKERN_TILES)
  static const bool found = [] {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool has = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1u) && (d >> 24 & 1u);
    return has && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
  }();
  return found;
#else
  return false;
#endif
}

PORTKERN_INLINE vec pair(vec even, vec odd) {  // of floats that are bfloat16 already
  return as<vec>(as<uvec>(even) >> 16 | (as<uvec>(odd) & 0xffff0000u));
}

// ---- Panels

template <int STEP>
PORTKERN_INLINE void shuffle(vec (&rows)[LANES]) {
  vec next[LANES];
  for (int i = 0; i < LANES / 2; ++i) {
    next[2 * i] = interleave_low(rows[i], rows[i + LANES / 2]);
    next[2 * i + 1] = interleave_high(rows[i], rows[i + LANES / 2]);
  }
  for (int i = 0; i < LANES; ++i) rows[i] = next[i];
  if constexpr (STEP > 1) shuffle<STEP / 2>(rows);
}

// Rows become columns by perfect shuffles.
PORTKERN_INLINE void transpose(vec (&rows)[LANES]) { shuffle<LANES / 2>(rows); }

// Consecutive terms of one step: one, or two bfloat16 in a lane.
template <bool PAIRS>
constexpr int64_t STEP = PAIRS ? 2 : 1;

#if defined(__AVX512BW__)
// Two vectors of pairs of two rows: 32 elements of each are interleaved by two moves of halves.
PORTKERN_INLINE void pair_rows(const bf16_t* even, const bf16_t* odd, float* to) {
  alignas(64) static const uint16_t places[2][32] = {
      {0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39,
       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
      {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
       24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
  const __m512i a = _mm512_loadu_si512(even), b = _mm512_loadu_si512(odd);
  for (int half = 0; half < 2; ++half)
    _mm512_storeu_si512(to + half * LANES, _mm512_permutex2var_epi16(
                                               a, _mm512_load_si512(places[half]), b));
}
#endif

// A matrix in memory, whose rows are `stride` elements apart.
template <typename T>
struct Rows {
  const T* at;
  int64_t stride;

  int64_t slice(int64_t most) const { return most; }
  void prepare(int64_t, int64_t) const {}

  // Element [row][col] and those behind it, of which `count` are there.
  PORTKERN_METHOD vec some(int64_t row, int64_t col, int64_t count) const {
    const T* from = at + row * stride + col;
    return count >= LANES ? floats(from) : count > 0 ? floats(from, count) : vec{};
  }

  // One panel of the right operand: V vectors of each of `depth` rows from `first` on; columns
  // after `cols` are zeros.
  template <bool PAIRS, int V>
  void pack(int64_t first, int64_t depth, int64_t col, int64_t cols, float* to) const {
    int64_t p = first;
#if defined(__AVX512BW__)
    if constexpr (PAIRS && V == 2 && std::is_same_v<T, bf16_t>)
      for (; col + 2 * LANES <= cols && p + 2 <= first + depth; p += 2, to += 2 * LANES)
        pair_rows(at + p * stride + col, at + (p + 1) * stride + col, to);
#endif
    for (; p < first + depth; p += STEP<PAIRS>)
      for (int v = 0; v < V; ++v, to += LANES) {
        const int64_t at_col = col + v * LANES, left = cols - at_col;
        vec one = some(p, at_col, left);
        if (PAIRS) one = pair(one, p + 1 < first + depth ? some(p + 1, at_col, left) : vec{});
        store(to, one);
      }
  }
};

// LANES terms from `from` on, of which `count` are there, or twice as many in pairs.
template <bool PAIRS, typename T>
PORTKERN_INLINE vec terms(const T* from, int64_t count) {
#if defined(__AVX512F__)
  if constexpr (PAIRS) {
    if (count >= 2 * LANES) return as<vec>(_mm512_loadu_si512(from));
    return as<vec>(_mm512_maskz_loadu_epi16(__mmask32((1ull << count) - 1), from));
  }
#endif
  return count >= LANES ? floats(from) : floats(from, count);
}

// The first W columns of the rows, that are PITCH apart.
template <int W, int64_t PITCH>
PORTKERN_INLINE void store_columns(vec (&rows)[LANES], float* to) {
  transpose(rows);  // compilers leave out what columns after W would take
#pragma GCC unroll 16
  for (int d = 0; d < W; ++d) store(to + d * PITCH, rows[d]);
}

// LANES rows of an operand, of which `count` are there, as columns that are PITCH apart. Up to
// LANES columns behind the last are written too.
template <bool PAIRS, int64_t PITCH = TALL, typename T>
static void turn(const T* from, int64_t stride, int64_t count, int64_t depth, float* to) {
  constexpr int64_t WIDE = STEP<PAIRS> * LANES;
  for (int64_t p = 0; p < depth; p += WIDE, from += WIDE, to += LANES * PITCH) {
    const int64_t width = least(depth - p, WIDE);
    vec rows[LANES] = {};
    if (count >= LANES && width == WIDE) {
#pragma GCC unroll 16
      for (int r = 0; r < LANES; ++r) rows[r] = terms<PAIRS>(from + r * stride, WIDE);
    } else {
#pragma GCC unroll 16
      for (int r = 0; r < LANES; ++r)
        if (r < count) rows[r] = terms<PAIRS>(from + r * stride, width);
    }
    if (width > WIDE / 2) store_columns<LANES, PITCH>(rows, to);
    else store_columns<LANES / 2, PITCH>(rows, to);
  }
}

// Panels of `height` rows of the left operand, term by term down the panel, TALL floats a term.
template <bool PAIRS, typename T>
static void pack_left(const T* from, int64_t stride, int64_t rows, int64_t height, int64_t depth,
                      float* to) {
  for (int64_t i = 0; i < rows; i += height, to += blocks(depth, STEP<PAIRS>) * TALL)
    for (int64_t g = 0; g < height; g += LANES)
      turn<PAIRS>(from + (i + g) * stride, stride, least(rows - i, height) - g, depth, to + g);
}

// ---- Tiles

// to = or += a panel of H rows times one of V vectors.
template <int H, int V>
static void tile(const float* a, const float* b, int64_t steps, float* to, bool first) {
  vec c[H][V] = {};
  for (int64_t p = 0; p < steps; ++p, a += TALL, b += V * LANES)
#pragma GCC unroll 16
    for (int r = 0; r < H; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) c[r][v] += a[r] * load(b + v * LANES);
#pragma GCC unroll 16
  for (int r = 0; r < H; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v, to += LANES) store(to, first ? c[r][v] : load(to) + c[r][v]);
}

#if defined(__AVX512F__)
template <int H, int V>
__attribute__((target("avx512bf16"))) static void tile_of_pairs(const float* a, const float* b,
                                                                int64_t steps, float* to,
                                                                bool first) {
  __m512 c[H][V] = {};
  for (int64_t p = 0; p < steps; ++p, a += TALL, b += V * LANES)
#pragma GCC unroll 16
    for (int r = 0; r < H; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        c[r][v] = _mm512_dpbf16_ps(c[r][v], (__m512bh)_mm512_set1_ps(a[r]),
                                   (__m512bh)_mm512_loadu_ps(b + v * LANES));
#pragma GCC unroll 16
  for (int r = 0; r < H; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v, to += LANES)
      _mm512_storeu_ps(to, first ? c[r][v] : _mm512_add_ps(_mm512_loadu_ps(to), c[r][v]));
}
#endif

#if defined(PORTKERN_TILES)
// Of H x V tiles of 16 x 16 results. The left panel has 16 steps of all its rows after another; tile
// registers have numbers, not names: 0 to 3 are sums, 4 and 5 left, 6 and 7 right.
template <int H, int V>
__attribute__((target("amx-tile,amx-bf16"))) static void tile_of_tiles(const float* a, const float* b,
                                                                       int64_t steps, float* to,
                                                                       bool first) {
  constexpr int64_t ACROSS = V * 64;  // bytes of a row of sums, and of a step on the right
  float* const below = to + 16 * V * LANES;
  if (first) {
    _tile_zero(0);
    if (V > 1) _tile_zero(1);
    if (H > 1) _tile_zero(2);
    if (H * V > 2) _tile_zero(3);
  } else {
    _tile_loadd(0, to, ACROSS);
    if (V > 1) _tile_loadd(1, to + LANES, ACROSS);
    if (H > 1) _tile_loadd(2, below, ACROSS);
    if (H * V > 2) _tile_loadd(3, below + LANES, ACROSS);
  }
  for (int64_t p = 0; p < steps; p += 16, a += H * 256, b += V * 256) {
    _tile_loadd(6, b, ACROSS);
    _tile_loadd(4, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (V > 1) {
      _tile_loadd(7, b + LANES, ACROSS);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (H > 1) {
      _tile_loadd(5, a + 256, 64);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (H * V > 2) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, to, ACROSS);
  if (V > 1) _tile_stored(1, to + LANES, ACROSS);
  if (H > 1) _tile_stored(2, below, ACROSS);
  if (H * V > 2) _tile_stored(3, below + LANES, ACROSS);
}

// The registers of this thread while it lives: eight tiles of 16 rows of 64 bytes.
struct TileRegisters {
  __attribute__((target("amx-tile"))) TileRegisters() {
    struct alignas(64) Shape {
      uint8_t palette, start, reserved[14];
      uint16_t bytes[16];
      uint8_t rows[16];
    };
    // In memory: compilers know of its first eight bytes that the instruction reads them.
    static const Shape shape{
        1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&shape);
  }
  __attribute__((target("amx-tile"))) ~TileRegisters() { _tile_release(); }
};
#endif

typedef void Tile(const float*, const float*, int64_t, float*, bool);

// ---- Ways to multiply: a term at a time, two bfloat16 in a lane, or tiles of such. A panel of the
// left operand has `height(rows)` rows and takes `room(height, steps)` floats; DEPTH terms of a block
// are added before they join its sums.

template <bool IN_PAIRS>
struct InVectors {
  static constexpr bool PAIRS = IN_PAIRS;
  static constexpr int64_t HIGH = ROWS, WIDE = COLS, DEPTH = KC * STEP<PAIRS>, TALLEST = MR;

  static int64_t height(int64_t rows) { return blocks(rows, blocks(rows, MR)); }
  static int64_t steps(int64_t depth) { return blocks(depth, STEP<PAIRS>); }
  static int64_t room(int64_t, int64_t steps) { return steps * TALL; }

  template <typename T>
  static void pack(const T* from, int64_t stride, int64_t rows, int64_t height, int64_t depth,
                   float* to) {
    pack_left<PAIRS>(from, stride, rows, height, depth, to);
  }

  // Of as many rows as there are: a tile of twelve that has eight would take half as long again.
  template <int H = MR, int V = NV>
  static Tile* tile(int64_t rows, int64_t vectors) {
    if constexpr (H > 1)
      if (rows < H) return tile<H - 1, V>(rows, vectors);
    if constexpr (V > 1)
      if (vectors < V) return tile<H, V - 1>(rows, vectors);
#if defined(__AVX512F__)
    if constexpr (PAIRS) return tile_of_pairs<H, V>;
#endif
    return product::tile<H, V>;
  }
};

using Terms = InVectors<false>;
using Pairs = InVectors<true>;

#if defined(PORTKERN_TILES)
struct Tiles {
  static constexpr bool PAIRS = true;
  // So fast that loading and storing sums takes as long as 256 terms: more of them, of fewer columns.
  static constexpr int64_t HIGH = ROWS * 3 / 2, WIDE = COLS / 2, DEPTH = 8 * KC, TALLEST = 32;

  static int64_t height(int64_t rows) { return rows > 16 ? 32 : 16; }
  static int64_t steps(int64_t depth) { return blocks(depth, 32) * 16; }
  static int64_t room(int64_t height, int64_t steps) { return height * steps; }

  // Rows as they lie, 32 elements of each, with zeros behind them and below.
  template <typename T>
  static void pack(const T* from, int64_t stride, int64_t rows, int64_t height, int64_t depth,
                   float* to) {
    for (int64_t i = 0; i < rows; i += height)
      for (int64_t p = 0; p < depth; p += 32)
        for (int64_t r = i; r < i + height; ++r, to += 16)
          store(to, r < rows ? terms<true>(from + r * stride + p, depth - p) : vec{});
  }

  static Tile* tile(int64_t rows, int64_t vectors) {
    if (rows > 16) return vectors > 1 ? tile_of_tiles<2, 2> : tile_of_tiles<2, 1>;
    return vectors > 1 ? tile_of_tiles<1, 2> : tile_of_tiles<1, 1>;
  }

  TileRegisters held;
};
#endif

// What `run` returns of the fastest way for the kernel's type on this processor.
template <class Run>
PORTKERN_INLINE int by_fastest(Run run) {
#if defined(PORTKERN_TILES)
  if constexpr (BFLOAT16)
    if (has_tiles()) return run(static_cast<Tiles*>(nullptr));
#endif
#if defined(__AVX512F__)
  if constexpr (BFLOAT16)
    if (has_pairs()) return run(static_cast<Pairs*>(nullptr));
#endif
  return run(static_cast<Terms*>(nullptr));
}

// ---- Blocks

// What a thread keeps of its block, within a second-level cache.
template <class Way>
struct Buffers {
  enum : int64_t {
    STEPS = Way::DEPTH / STEP<Way::PAIRS>,
    PANELS = Way::TALLEST > MR ? (Way::HIGH + Way::TALLEST) * STEPS
                               : ((Way::HIGH / MR + 1) * STEPS + LANES) * TALL,
  };
  alignas(64) float left[PANELS];
  alignas(64) float right[(Way::WIDE + NR) * STEPS + LANES];
  alignas(64) float sums[(Way::HIGH + Way::TALLEST) * (Way::WIDE + NR)];
};

// Some of the terms, from `first` on.
struct Slice {
  int64_t first, depth;
};

// The panel of the right operand that begins at column `col`, by its vectors.
template <class Way, class Right>
static int64_t pack_right(const Right& right, const Slice& p, int64_t col, int64_t cols,
                          float* to) {
  const int64_t vectors = least(blocks(cols - col, LANES), NV);
  if (vectors == NV) right.template pack<Way::PAIRS, NV>(p.first, p.depth, col, cols, to);
  else if (vectors == NV - 1)
    right.template pack<Way::PAIRS, NV - 1>(p.first, p.depth, col, cols, to);
  else right.template pack<Way::PAIRS, 1>(p.first, p.depth, col, cols, to);
  const int64_t packed = blocks(p.depth, STEP<Way::PAIRS>), all = Way::steps(p.depth);
  if (all > packed)
    memset(to + packed * vectors * LANES, 0, size_t((all - packed) * vectors * LANES) * sizeof(float));
  return vectors;
}

// One block: rows x cols of the result. A panel of the left operand meets all of the right one, so
// that results are written along their rows.
template <class Way, typename T, class Right, class Out>
static void block(const T* left, int64_t stride, const Right& right, const Out& out, int64_t rows,
                  int64_t cols, int64_t depth) {
  static thread_local Buffers<Way> own;
  [[maybe_unused]] const Way way{};
  const int64_t height = Way::height(rows), panels = blocks(cols, NR);
  const int64_t most = right.slice(Way::DEPTH);
  Tile* const whole = Way::tile(height, NV);
  for (int64_t p = 0; p == 0 || p < depth; p += most) {  // once even without terms: zeros
    const Slice slice{p, least(depth - p, most)};
    const int64_t steps = Way::steps(slice.depth);
    Way::pack(left + p, stride, rows, height, slice.depth, own.left);
    right.prepare(p, slice.depth);
    int64_t vectors = 0;
    for (int64_t j = 0; j < panels; ++j)
      vectors = pack_right<Way>(right, slice, j * NR, cols, own.right + j * steps * NR);
    Tile* const last = Way::tile(height, vectors);
    for (int64_t r = 0, i = 0; r < rows; r += height, ++i)
      for (int64_t j = 0; j < panels; ++j) {
        // Sums of one slice leave at once, and need no place of their own.
        float* to = own.sums + (slice.depth == depth ? 0 : (i * panels + j) * height * NR);
        const int64_t width = j + 1 < panels ? int64_t(NV) : vectors;
        (j + 1 < panels ? whole : last)(own.left + i * Way::room(height, steps),
                                        own.right + j * steps * NR, steps, to, p == 0);
        if (p + slice.depth < depth) continue;
        out.put(r, j * NR, least(height, rows - r), least(cols - j * NR, NR), to, width * LANES);
      }
  }
}

// How a product is cut into blocks: into more of them where threads would have none, or unequal
// work.
struct Cut {
  int64_t rows, cols, down, across;

  template <class Way>
  Cut(const Way*, int64_t batch, int64_t m, int64_t n, bool wide) {
    const int64_t wanted = wide ? 3 * threads() : 1, high = Way::TALLEST;
    rows = share(m, Way::HIGH, high), cols = share(n, Way::WIDE, NR);
    auto count = [&] { return batch * blocks(m, rows) * blocks(n, cols); };
    while (count() < wanted && (cols > 3 * NR || rows > 2 * high))
      if (cols > 3 * NR && cols > rows) cols = blocks(cols, 2 * NR) * NR;
      else if (rows > 2 * high) rows = blocks(rows, 2 * high) * high;
      else cols = blocks(cols, 2 * NR) * NR;
    down = blocks(m, rows), across = blocks(n, cols);
  }

  // Equal ones: a block of the few rows that are left packs as much of the other operand.
  static int64_t share(int64_t n, int64_t most, int64_t step) {
    const int64_t equal = n ? blocks(n, blocks(n, most)) : 0;
    return least(n, least(blocks(equal, step) * step, most));
  }
};

}  // namespace product
