// Products of few rows, columns or terms, alone or in a batch: memory limits them, so the operands
// are read where they lie, in their order, and not copied into panels.
#pragma once
#include <portkern/matrix.h>

namespace product {

// More rows, columns or terms than these are worth the copying: an element is then used often.
enum { MOST_ROWS = 8, MOST_COLUMNS = 4, MOST_TERMS = 16 };

// Rows of fewer terms than these are summed side by side.
enum { SHALLOW = 4 * LANES };

// Results from here on do not fit into caches, and go past them.
enum { STREAM_FROM = 4194304 };

// How many threads share one sum, where there are fewer independent jobs than threads.
inline int64_t shares(int64_t jobs, int64_t depth, bool wide) {
  return wide && jobs < threads() ? least(blocks(threads(), jobs), blocks(depth, 1024)) : 1;
}

// Adds what each share has of `count` sums, and lets `write` take the total of LANES of them.
template <typename Write>
static void add_shares(const float* parts, int64_t count, int64_t all, Write write) {
  for (int64_t i = 0; i < count; i += LANES) {
    vec total = {};
    for (int64_t s = 0; s < all; ++s) total += load(parts + s * count + i);
    write(i, total);
  }
}

// ---- Few rows

// sums[m][width] = a * b for a slice of the terms and `cols` columns: U rows of b side by side, so
// that a sum is loaded and stored once for U products.
template <int U, typename T>
static void add_terms(const scalar_t* a, int64_t m, int64_t k, const T* b, int64_t n, int64_t cols,
                      float* sums, int64_t width) {
  float left[MOST_ROWS][U];
  for (int64_t r = 0; r < m; ++r)
    for (int u = 0; u < U; ++u) left[r][u] = a[r * k + u];
  for (int64_t j = 0; j < cols; j += LANES) {
    vec right[U];
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u)
      right[u] = cols - j < LANES ? floats(b + u * n + j, cols - j) : floats(b + u * n + j);
    for (int64_t r = 0; r < m; ++r) {
      vec sum = left[r][0] * right[0];
#pragma GCC unroll 8
      for (int u = 1; u < U; ++u) sum += left[r][u] * right[u];
      store(sums + r * width + j, load(sums + r * width + j) + sum);
    }
  }
}

// The same for all terms of a share, in slices: one long chain of additions would lose digits.
template <typename T>
static void few_rows_share(const Product<T>& all, const scalar_t* a, const T* b, int64_t depth,
                           int64_t cols, float* total, float* sums, int64_t width) {
  constexpr int64_t U = 8, SLICE = 1024;
  memset(total, 0, size_t(all.m * width) * sizeof(float));
  for (int64_t p = 0; p < depth;) {
    const int64_t end = least(depth, p + SLICE);
    memset(sums, 0, size_t(all.m * width) * sizeof(float));
    for (; p + U <= end; p += U)
      add_terms<U>(a + p, all.m, all.k, b + p * all.n, all.n, cols, sums, width);
    for (; p < end; ++p)
      add_terms<1>(a + p, all.m, all.k, b + p * all.n, all.n, cols, sums, width);
    for (int64_t i = 0; i < all.m * width; i += LANES)
      store(total + i, load(total + i) + load(sums + i));
  }
}

template <typename T>
static int few_rows(const Product<T>& all) {
  const bool wide = all.wide();
  constexpr int64_t ROOM = 4096;  // floats of sums: they stay in the first-level cache
  int64_t width = blocks(least(all.n, ROOM / all.m), LANES) * LANES;
  if (wide) width = least(width, blocks(blocks(all.n, threads()), 4 * LANES) * 4 * LANES);
  const int64_t across = blocks(all.n, width), share = shares(all.batch * across, all.k, wide);
  const int64_t depth = blocks(blocks(all.k, share), 8) * 8, count = all.m * width;
  float* parts = share > 1 ? workspace<float>(all.batch * across * share * count) : nullptr;
  if (share > 1 && !parts) return 1;
  auto finish = [&](int64_t tile, const float* sums, int64_t) {
    const int64_t item = tile / across, j = tile % across * width;
    const Matrix out{all.c + item * all.m * all.n + j, all.n, all.scale ? all.scale + j : nullptr};
    out.put(0, 0, all.m, least(width, all.n - j), sums, width);
  };
#pragma omp parallel if (wide)
  {
    alignas(64) float own[2 * (ROOM + MOST_ROWS * 4 * LANES)];
#pragma omp for schedule(static)
    for (int64_t job = 0; job < all.batch * across * share; ++job) {
      const int64_t tile = job / share, item = tile / across, j = tile % across * width;
      const int64_t p = least(job % share * depth, all.k);
      float* total = parts ? parts + job * count : own;
      few_rows_share(all, all.a + item * all.m * all.k + p,
                     all.b + item * all.k * all.n + p * all.n + j, least(depth, all.k - p),
                     least(width, all.n - j), total, own + count, width);
      if (!parts) finish(tile, total, count);
    }
    if (parts) {
#pragma omp for schedule(static)
      for (int64_t tile = 0; tile < all.batch * across; ++tile) {
        add_shares(parts + tile * share * count, count, share,
                   [&](int64_t i, vec total) { store(own + i, total); });
        finish(tile, own, count);
      }
    }
  }
  free(parts);
  return 0;
}

// ---- Few terms

// R rows of the result at `cols` columns; `b` has them as floats, `width` apart.
template <int R>
static void row_of_terms(const Matrix& out, const scalar_t* a, int64_t k, const float* b,
                         int64_t width, int64_t row, int64_t cols, bool large) {
  float left[R][MOST_TERMS];
  for (int r = 0; r < R; ++r)
    for (int64_t p = 0; p < k; ++p) left[r][p] = a[(row + r) * k + p];
  scalar_t* to = out.at + row * out.stride;
  for (int64_t j = 0; j < cols; j += LANES) {
    vec sum[R] = {};
    for (int64_t p = 0; p < k; ++p)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[r] += left[r][p] * load(b + p * width + j);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float last[LANES];
      if (cols - j >= LANES) out.whole(to + r * out.stride + j, sum[r], j, large);
      else store(last, sum[r]), out.one(to + r * out.stride + j, last, j, cols - j);
    }
  }
}

template <typename T>
static int few_terms(const Product<T>& all) {
  constexpr int64_t WIDTH = 512, DOWN = 256;
  const int64_t across = blocks(all.n, WIDTH), down = blocks(all.m, DOWN);
  const bool large = all.batch * all.m * all.n >= STREAM_FROM;
#pragma omp parallel for schedule(static) if (all.wide())
  for (int64_t job = 0; job < all.batch * down * across; ++job) {
    alignas(64) float right[MOST_TERMS * WIDTH];
    const int64_t item = job / (down * across), i = job / across % down * DOWN;
    const int64_t j = job % across * WIDTH, cols = least(WIDTH, all.n - j);
    const Rows<T> b{all.b + item * all.k * all.n + j, all.n};
    for (int64_t p = 0; p < all.k; ++p)
      for (int64_t x = 0; x < cols; x += LANES)
        store(right + p * WIDTH + x, b.some(p, x, cols - x));
    const scalar_t* a = all.a + (item * all.m + i) * all.k;
    const Matrix out{all.c + (item * all.m + i) * all.n + j, all.n, all.scale ? all.scale + j : 0};
    int64_t row = 0;
    const int64_t rows = least(DOWN, all.m - i);
    for (; row + 8 <= rows; row += 8)
      row_of_terms<8>(out, a, all.k, right, WIDTH, row, cols, large);
    for (; row < rows; ++row) row_of_terms<1>(out, a, all.k, right, WIDTH, row, cols, large);
  }
  return 0;
}

// ---- Few columns: rows of a, by columns of b that lie as rows (`turned`, k apart)

// The products of R rows with N columns over `depth` terms; U vectors at a time, since each sum
// waits for its last addition.
template <int N, int R, int U>
static void dots(const scalar_t* a, int64_t k, const float* turned, int64_t depth,
                 float* total) {
  constexpr int64_t SLICE = 2048;  // of one chain of additions
  vec whole[R][N] = {};
  for (int64_t p = 0; p < depth;) {
    const int64_t end = least(depth, p + SLICE);
    vec c[U][R][N] = {};
    auto add = [&](int u, int64_t at, int64_t count) {
      vec right[N];
      for (int j = 0; j < N; ++j) {
        const float* from = turned + j * k + at;
        right[j] = count < LANES ? load(from, count) : load(from);
      }
      for (int r = 0; r < R; ++r) {
        const scalar_t* from = a + r * k + at;
        const vec left = count < LANES ? load(from, count) : load(from);
        for (int j = 0; j < N; ++j) c[u][r][j] += left * right[j];
      }
    };
    for (; p + U * LANES <= end; p += U * LANES)
#pragma GCC unroll 8
      for (int u = 0; u < U; ++u) add(u, p + u * LANES, LANES);
    for (; p < end; p += LANES) add(0, p, least(end - p, LANES));
    p = end;
    for (int u = 0; u < U; ++u)
      for (int r = 0; r < R; ++r)
        for (int j = 0; j < N; ++j) whole[r][j] += c[u][r][j];
  }
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < N; ++j) total[r * N + j] = reduce_add(whole[r][j]);
}

// The sum of each vector's lanes, in the lane of its number: pairs of vectors become one that has
// the sums of both, until one is left.
template <int COUNT = LANES>
PORTKERN_INLINE vec lane_sums(vec (&of)[LANES]) {
  for (int i = 0; i < COUNT / 2; ++i) {
    const vec a = of[i], b = of[i + COUNT / 2];
    of[i] = interleave_low(a, b) + interleave_high(a, b);
  }
  if constexpr (COUNT > 2) return lane_sums<COUNT / 2>(of);
  return of[0];
}

enum { DOWN = 64 };  // rows of a job, a multiple of LANES

// At most DOWN rows of K terms: compilers know how to take vectors of such apart.
template <int N, int K>
static void tiny_rows(const scalar_t* a, const float* turned, int64_t rows, float* total) {
  for (int j = 0; j < N; ++j) {
    float sums[DOWN];
    for (int64_t i = 0; i < rows; ++i) {
      sums[i] = 0.0f;
      for (int p = 0; p < K; ++p) sums[i] += float(a[i * K + p]) * turned[j * K + p];
    }
    for (int64_t i = 0; i < rows; ++i) total[i * N + j] = sums[i];
  }
}

// Short rows: LANES of them at once. A vector at the end of a row has the next one's elements too if
// these are there (WITHIN), and `kept` are its own: a load of some lanes takes several times as long.
template <int N, bool WITHIN>
static void short_rows(const scalar_t* a, int64_t k, const float* turned, uvec kept, int64_t rows,
                       float* total) {
  const int64_t whole = k / LANES * LANES, rest = k - whole;
  for (int j = 0; j < N; ++j) {
    const float* const b = turned + j * k;
    const vec last = load(b + whole, rest);
    vec c[LANES] = {};
#pragma GCC unroll 16
    for (int r = 0; r < LANES; ++r) {
      if (!WITHIN && r >= rows) continue;
      const scalar_t* const from = a + r * k;
      const vec left = WITHIN ? as<vec>(as<uvec>(load(from + whole)) & kept) : load(from + whole, rest);
      c[r] = left * last;
      for (int64_t p = 0; p < whole; p += LANES) c[r] += load(from + p) * load(b + p);
    }
    const vec sums = lane_sums(c);
    if (N == 1) return store(total, sums);
    float lanes[LANES];
    store(lanes, sums);
    for (int64_t r = 0; r < LANES; ++r) total[r * N + j] = lanes[r];
  }
}

// Of `rows` rows from `row` on, by one share of the terms; `left` elements are there from a on.
template <int N>
static void some_rows(const scalar_t* a, int64_t k, const float* turned, int64_t depth,
                      int64_t rows, int64_t left, float* total) {
  int64_t i = 0;
  if (k == 2) return tiny_rows<N, 2>(a, turned, rows, total);
  if (k == 3) return tiny_rows<N, 3>(a, turned, rows, total);
  if (k == 4) return tiny_rows<N, 4>(a, turned, rows, total);
  if (k < SHALLOW) {
    uvec kept;
    for (int lane = 0; lane < LANES; ++lane) kept[lane] = lane < k % LANES ? ~0u : 0u;
    for (; i + LANES <= rows && (i + LANES) * k + LANES <= left; i += LANES)
      short_rows<N, true>(a + i * k, k, turned, kept, LANES, total + i * N);
    for (; i < rows; i += LANES)
      short_rows<N, false>(a + i * k, k, turned, kept, least(rows - i, LANES), total + i * N);
  }
  for (; i + 4 <= rows; i += 4) dots<N, 4, 1>(a + i * k, k, turned, depth, total + i * N);
  for (; i < rows; ++i) dots<N, 1, 4>(a + i * k, k, turned, depth, total + i * N);
}

template <int N, typename T>
static int columns_of(const Product<T>& all) {
  const bool wide = all.wide();
  const int64_t down = blocks(all.m, DOWN), k = all.k;
  const int64_t share = shares(all.batch * down, k, wide);
  const int64_t depth = blocks(blocks(k, share), LANES) * LANES;
  const bool lies = N == 1 && sizeof(T) == sizeof(float);  // b itself is such a row
  const int64_t floats = blocks(lies ? 0 : all.batch * N * k, LANES) * LANES;
  float* room = workspace<float>(floats + (share > 1 ? all.batch * down * share * DOWN * N : 0));
  if (!room) return 1;
  const float* turned = lies ? reinterpret_cast<const float*>(all.b) : room;
  float* parts = share > 1 ? room + floats : nullptr;
  float scale[N * LANES];
  for (int i = 0; i < N * LANES; ++i) scale[i] = all.scale ? float(all.scale[i % N]) : 1.0f;
  // Of the rows of one job, which lie side by side.
  auto write = [&](int64_t tile, int64_t i, vec sum) {
    const int64_t row = tile % down * DOWN, count = least(DOWN, all.m - row) * N - i;
    scalar_t* to = all.c + (tile / down * all.m + row) * N + i;
    if (all.scale) sum *= load(scale + i % (N * LANES));
    if (count >= LANES) store(to, sum);
    else if (count > 0) store(to, sum, count);
  };
#pragma omp parallel if (wide)
  {
#pragma omp for schedule(static)
    for (int64_t p = 0; p < (lies ? 0 : all.batch * k); ++p)
      for (int64_t j = 0; j < N; ++j) room[(p / k * N + j) * k + p % k] = all.b[p * N + j];
#pragma omp for schedule(static)
    for (int64_t job = 0; job < all.batch * down * share; ++job) {
      alignas(64) float own[DOWN * N];
      const int64_t tile = job / share, p = least(job % share * depth, k);
      const int64_t item = tile / down, row = tile % down * DOWN, rows = least(DOWN, all.m - row);
      float* total = parts ? parts + job * DOWN * N : own;
      const int64_t start = (item * all.m + row) * k + p;
      some_rows<N>(all.a + start, k, turned + item * N * k + p, least(depth, k - p), rows,
                   all.batch * all.m * k - start, total);
      for (int64_t i = 0; !parts && i < rows * N; i += LANES) write(tile, i, load(total + i));
    }
  }
  for (int64_t tile = 0; parts && tile < all.batch * down; ++tile)
    add_shares(parts + tile * share * DOWN * N, DOWN * N, share,
               [&](int64_t i, vec total) { write(tile, i, total); });
  free(room);
  return 0;
}

template <typename T, int N = MOST_COLUMNS>
static int few_columns(const Product<T>& all) {
  if constexpr (N > 1)
    if (all.n < N) return few_columns<T, N - 1>(all);
  if constexpr (N == 1 && sizeof(T) == sizeof(scalar_t))  // a column of factors is a row of them
    if (all.k == 1) return few_terms(Product<T>{all.b, all.a, 0, all.c, all.batch, 1, all.m, 1});
  return columns_of<N>(all);
}

}  // namespace product
