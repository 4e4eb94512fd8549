// Matrix products block by block: panels of both operands are copied into cache, and tiles of the
// result stay in registers. A kernel says what the right operand and the result are (`Right`,
// `Out`); threads take whole blocks and pack what they need, so that none waits for another.
#pragma once

#include <stdlib.h>

#if defined(_OPENMP) && __has_include(<omp.h>)
#include <omp.h>
#define PORTKERN_THREADS omp_get_max_threads()
#else
#define PORTKERN_THREADS 1
#endif
#if defined(__AVX512F__)
#include <cpuid.h>
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
enum { KC = 128 };

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
    for (int64_t p = first; p < first + depth; p += STEP<PAIRS>)
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

// The first W columns of the rows, that are TALL apart.
template <int W>
PORTKERN_INLINE void store_columns(vec (&rows)[LANES], float* to) {
  transpose(rows);  // compilers leave out what columns after W would take
#pragma GCC unroll 16
  for (int d = 0; d < W; ++d) store(to + d * TALL, rows[d]);
}

// LANES rows of the left operand, of which `count` are there, as columns that are TALL apart. Up to
// LANES columns behind the last are written too.
template <bool PAIRS, typename T>
static void turn(const T* from, int64_t stride, int64_t count, int64_t depth, float* to) {
  constexpr int64_t WIDE = STEP<PAIRS> * LANES;
  for (int64_t p = 0; p < depth; p += WIDE, from += WIDE, to += LANES * TALL) {
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
    if (width > WIDE / 2) store_columns<LANES>(rows, to);
    else store_columns<LANES / 2>(rows, to);
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

typedef void Tile(const float*, const float*, int64_t, float*, bool);

// Of as many rows as there are: a tile of twelve that has eight would take half as long again.
template <bool PAIRS, int H = MR, int V = NV>
inline Tile* tile_of(int64_t rows, int64_t vectors) {
  if constexpr (H > 1)
    if (rows < H) return tile_of<PAIRS, H - 1, V>(rows, vectors);
  if constexpr (V > 1)
    if (vectors < V) return tile_of<PAIRS, H, V - 1>(rows, vectors);
#if defined(__AVX512F__)
  if constexpr (PAIRS) return tile_of_pairs<H, V>;
#endif
  return tile<H, V>;
}

// ---- Blocks

// What a thread keeps of its block, within a second-level cache: ROWS x COLS of the result.
template <bool PAIRS>
struct Buffers {
  alignas(64) float left[((ROWS / MR + 1) * KC + LANES) * TALL];
  alignas(64) float right[(COLS + NR) * KC + LANES];
  alignas(64) float sums[(ROWS + MR) * (COLS + NR)];
};

// Some of the terms, from `first` on.
struct Slice {
  int64_t first, depth;
};

// The panel of the right operand that begins at column `col`, by its vectors.
template <bool PAIRS, class Right>
static int64_t pack_right(const Right& right, const Slice& p, int64_t col, int64_t cols,
                          float* to) {
  const int64_t vectors = least(blocks(cols - col, LANES), NV);
  if (vectors == NV) right.template pack<PAIRS, NV>(p.first, p.depth, col, cols, to);
  else if (vectors == NV - 1) right.template pack<PAIRS, NV - 1>(p.first, p.depth, col, cols, to);
  else right.template pack<PAIRS, 1>(p.first, p.depth, col, cols, to);
  return vectors;
}

// One block: rows x cols of the result. A panel of the left operand meets all of the right one, so
// that results are written along their rows.
template <bool PAIRS, typename T, class Right, class Out>
static void block(const T* left, int64_t stride, const Right& right, const Out& out, int64_t rows,
                  int64_t cols, int64_t depth) {
  static thread_local Buffers<PAIRS> own;
  const int64_t height = blocks(rows, blocks(rows, MR)), panels = blocks(cols, NR);
  const int64_t most = right.slice(KC * STEP<PAIRS>);
  Tile* const whole = tile_of<PAIRS>(height, NV);
  for (int64_t p = 0; p == 0 || p < depth; p += most) {  // once even without terms: zeros
    const Slice slice{p, least(depth - p, most)};
    const int64_t steps = blocks(slice.depth, STEP<PAIRS>);
    pack_left<PAIRS>(left + p, stride, rows, height, slice.depth, own.left);
    right.prepare(p, slice.depth);
    int64_t vectors = 0;
    for (int64_t j = 0; j < panels; ++j)
      vectors = pack_right<PAIRS>(right, slice, j * NR, cols, own.right + j * steps * NR);
    Tile* const last = tile_of<PAIRS>(height, vectors);
    for (int64_t r = 0, i = 0; r < rows; r += height, ++i)
      for (int64_t j = 0; j < panels; ++j) {
        // Sums of one slice leave at once, and need no place of their own.
        float* to = own.sums + (slice.depth == depth ? 0 : (i * panels + j) * MR * NR);
        const int64_t width = j + 1 < panels ? int64_t(NV) : vectors;
        (j + 1 < panels ? whole : last)(own.left + i * steps * TALL, own.right + j * steps * NR,
                                        steps, to, p == 0);
        if (p + slice.depth < depth) continue;
        out.put(r, j * NR, least(height, rows - r), least(cols - j * NR, NR), to, width * LANES);
      }
  }
}

// How a product is cut into blocks: into more of them where threads would have none, or unequal
// work.
struct Cut {
  int64_t rows, cols, down, across;

  Cut(int64_t batch, int64_t m, int64_t n, bool wide) {
    const int64_t wanted = wide ? 3 * threads() : 1;
    rows = share(m, ROWS, MR), cols = share(n, COLS, NR);
    auto count = [&] { return batch * blocks(m, rows) * blocks(n, cols); };
    while (count() < wanted && (cols > 3 * NR || rows > 2 * MR))
      if (cols > 3 * NR && cols > rows) cols = blocks(cols, 2 * NR) * NR;
      else if (rows > 2 * MR) rows = blocks(rows, 2 * MR) * MR;
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
