#define PARALLEL_FROM 100000  // knob: 30000 100000 300000
#define KC 128                // knob: 64 128 256
#define ROWS 384              // knob: 96 192 384
#define COLS 512              // knob: 256 512 1024

// A job is a block of ROWS x COLS of the product. Weights become float32 while they are packed;
// the scales wait until the end, so that a weight is exact and the sum is scaled once.

// The registers of one micro-tile: MR rows of NV vectors, and room for a row of weights and one
// element of A. Eight rows, because few rows are what weights of int8 are often made for.
#if defined(__AVX512F__) || defined(__ARM_NEON)
enum { MR = 8, NV = 3 };
#elif defined(__AVX__)
enum { MR = 4, NV = 3 };
#else
enum { MR = 4, NV = 2 };
#endif
enum { NR = NV * LANES, WIDTH = COLS / NR * NR };

PORTKERN_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Panels of MR rows of A, element by element down the panel.
static void pack_a(const scalar_t* a, float* to, int64_t rows, int64_t depth, int64_t stride) {
  for (int64_t i = 0; i < rows; i += MR)
    for (int64_t p = 0; p < depth; ++p)
      for (int r = 0; r < MR; ++r)
        *to++ = i + r < rows ? float(a[(i + r) * stride + p]) : 0.0f;
}

// Panels of NR columns of weights, row by row.
static void pack_weight(const int8_t* w, float* to, int64_t depth, int64_t cols, int64_t stride) {
  for (int64_t j = 0; j < cols; j += NR)
    for (int64_t p = 0; p < depth; ++p, to += NR) {
      const int8_t* row = w + p * stride + j;
      int8_t edge[NR] = {};
      if (cols - j < NR) row = static_cast<int8_t*>(memcpy(edge, row, size_t(cols - j)));
      for (int x = 0; x < NR; ++x) to[x] = row[x];
    }
}

// to = or += a panel of A times a panel of weights.
static void micro(const float* a, const float* b, float* to, int64_t depth, bool first) {
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
      float* at = to + r * WIDTH + v * LANES;
      store(at, first ? c[r][v] : load(at) + c[r][v]);
    }
}

static void block(const scalar_t* a, const int8_t* weight, const scalar_t* scale, scalar_t* c,
                  int64_t rows, int64_t cols, int64_t n, int64_t k) {
  alignas(64) static thread_local float packed_a[(ROWS + MR) * KC], packed_b[WIDTH * KC];
  alignas(64) static thread_local float sums[(ROWS + MR) * WIDTH];
  for (int64_t p = 0; p == 0 || p < k; p += KC) {  // once even for k = 0, which gives zeros
    const int64_t depth = least(k - p, KC);
    pack_a(a + p, packed_a, rows, depth, k);
    pack_weight(weight + p * n, packed_b, depth, cols, n);
    for (int64_t j = 0; j < cols; j += NR)
      for (int64_t r = 0; r < rows; r += MR)
        micro(packed_a + r * depth, packed_b + j * depth, sums + r * WIDTH + j, depth, p == 0);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = sums + r * WIDTH;
    scalar_t* to = c + r * n;
    int64_t j = 0;
    for (; j + LANES <= cols; j += LANES) store(to + j, load(from + j) * load(scale + j));
    if (j < cols) store(to + j, load(from + j) * load(scale + j, cols - j), cols - j);
  }
}

extern "C" int int8_matmul(const scalar_t* a, const int8_t* weight, const scalar_t* scale,
                           scalar_t* c, int64_t m, int64_t n, int64_t k) {
  const int64_t down = (m + ROWS - 1) / ROWS, across = (n + WIDTH - 1) / WIDTH;
#pragma omp parallel for schedule(dynamic) if (double(m) * n * k >= PARALLEL_FROM)
  for (int64_t job = 0; job < down * across; ++job) {
    const int64_t i = job / across * ROWS, j = job % across * WIDTH;
    block(a + i * k, weight + j, scale + j, c + i * n + j, least(m - i, ROWS), least(n - j, WIDTH),
          n, k);
  }
  return 0;
}
