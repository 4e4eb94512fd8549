#include <stdlib.h>

#define PARALLEL_FROM 100000  // knob: 30000 100000 300000
#define KC 256                // knob: 128 192 256 384
#define MC 96                 // knob: 48 96 144 192
#define NC 2048               // knob: 512 1024 2048 4096

// The registers of one micro-tile: MR rows of NV vectors, and room for a row of B and one of A.
#if defined(__AVX512F__)
enum { MR = 12, NV = 2 };
#elif defined(__AVX__)
enum { MR = 6, NV = 2 };
#elif defined(__ARM_NEON)
enum { MR = 8, NV = 3 };
#else
enum { MR = 4, NV = 2 };
#endif
enum { NR = NV * LANES };

// Panels of MR rows of A, element by element down the panel; rows beyond the edge are zeros.
static void pack_a(const scalar_t* a, float* to, int64_t rows, int64_t depth, int64_t stride) {
  for (int64_t i = 0; i < rows; i += MR)
    for (int64_t p = 0; p < depth; ++p)
      for (int r = 0; r < MR; ++r)
        *to++ = i + r < rows ? float(a[(i + r) * stride + p]) : 0.0f;
}

// One panel of NR columns of B, row by row.
static void pack_b(const scalar_t* b, float* to, int64_t depth, int64_t cols, int64_t stride) {
  for (int64_t p = 0; p < depth; ++p, to += NR) {
    const scalar_t* row = b + p * stride;
    if (cols >= NR) {
      for (int v = 0; v < NV; ++v) store(to + v * LANES, load(row + v * LANES));
    } else {
      for (int j = 0; j < NR; ++j) to[j] = j < cols ? float(row[j]) : 0.0f;
    }
  }
}

// to += A panel * B panel. `to` is float32 even for halves: they are rounded once, at the end.
static void micro(const float* a, const float* b, float* to, int64_t depth, int64_t stride,
                  int64_t rows, int64_t cols) {
  vec c[MR][NV] = {};
  for (int64_t p = 0; p < depth; ++p, a += MR, b += NR)
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) c[r][v] += a[r] * load(b + v * LANES);
  for (int r = 0; r < rows && r < MR; ++r, to += stride) {
    if (cols >= NR) {
      for (int v = 0; v < NV; ++v) store(to + v * LANES, load(to + v * LANES) + c[r][v]);
    } else {
      float edge[NR];
      for (int v = 0; v < NV; ++v) store(edge + v * LANES, c[r][v]);
      for (int64_t j = 0; j < cols; ++j) to[j] += edge[j];
    }
  }
}

static void* workspace(int64_t floats) {
  return aligned_alloc(64, size_t(floats * int64_t(sizeof(float)) + 63) / 64 * 64);
}

// C[:, columns] for one block of at most NC columns; all threads share the packed B.
static void column_block(const scalar_t* a, const scalar_t* b, float* sum, float* packed_b,
                         int64_t m, int64_t n, int64_t k, int64_t width, int64_t stride) {
  const int64_t panels = (width + NR - 1) / NR;
  for (int64_t p = 0; p < k; p += KC) {
    const int64_t depth = k - p < KC ? k - p : KC;
#pragma omp for schedule(static)
    for (int64_t j = 0; j < panels; ++j)
      pack_b(b + p * n + j * NR, packed_b + j * NR * KC, depth, width - j * NR, n);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < m; i += MC) {
      const int64_t rows = m - i < MC ? m - i : MC;
      alignas(64) static thread_local float packed_a[(MC + MR) * KC];
      pack_a(a + i * k + p, packed_a, rows, depth, k);
      for (int64_t j = 0; j < panels; ++j)
        for (int64_t r = 0; r < rows; r += MR)
          micro(packed_a + r * depth, packed_b + j * NR * KC, sum + (i + r) * stride + j * NR,
                depth, stride, rows - r, width - j * NR);
    }
  }
}

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k) {
  if (m == 0 || n == 0) return 0;
  constexpr bool in_place = sizeof(scalar_t) == sizeof(float);
  const int64_t block = n < NC ? (n + NR - 1) / NR * NR : NC;
  float* packed_b = static_cast<float*>(workspace(block * KC + NR));
  float* sums = in_place ? reinterpret_cast<float*>(c) : static_cast<float*>(workspace(m * block + 1));
  if (!packed_b || !sums) return 1;
#pragma omp parallel if (double(m) * double(n) * double(k) >= PARALLEL_FROM)
  for (int64_t j = 0; j < n; j += NC) {
    const int64_t width = n - j < NC ? n - j : NC, stride = in_place ? n : block;
    float* to = in_place ? sums + j : sums;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < m; ++i) memset(to + i * stride, 0, size_t(width) * sizeof(float));
    column_block(a, b + j, to, packed_b, m, n, k, width, stride);
    if (in_place) continue;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t x = 0; x < width; ++x) c[i * n + j + x] = to[i * stride + x];
  }
  free(packed_b);
  if (!in_place) free(sums);
  return 0;
}
