#define PARALLEL_FROM 32768  // knob: 8192 32768 131072
#define TILE 256             // knob: 64 128 256 512
#define BLOCK 512            // knob: 256 512 1024
#define ABREAST 4            // knob: 1 2 4 8

static float sum_run(const scalar_t* x, int64_t n) {
  return sum_terms(x, n, 0.0f, [](vec v, int64_t, int64_t) { return v; });
}

// ABREAST rows of n elements, so that as many streams are on their way from memory. Blocks are summed
// on their own, for the same reason as in sum_terms.
static void sum_runs(const scalar_t* x, scalar_t* y, int64_t n) {
  float total[ABREAST] = {};
  int64_t i = 0;
  while (i + LANES <= n) {
    const int64_t end = n - i < 64 * LANES ? n : i + 64 * LANES;
    vec part[ABREAST] = {};
    for (; i + LANES <= end; i += LANES)
      for (int r = 0; r < ABREAST; ++r) part[r] += load(x + r * n + i);
    for (int r = 0; r < ABREAST; ++r) total[r] += reduce_add(part[r]);
  }
  for (int r = 0; r < ABREAST; ++r)
    y[r] = i < n ? total[r] + reduce_add(load(x + r * n + i, n - i)) : total[r];
}

// Sums `count` rows of `width` <= TILE columns; `stride` elements lie between rows. Blocks of rows
// are summed on their own, for the same reason as in sum_terms.
static void add_rows(const scalar_t* x, float* total, int64_t count, int64_t width, int64_t stride) {
  float part[TILE];
  for (int64_t j = 0; j < width; ++j) total[j] = 0.0f;
  for (int64_t start = 0; start < count; start += BLOCK) {
    const int64_t end = start + BLOCK < count ? start + BLOCK : count;
    for (int64_t j = 0; j < width; ++j) part[j] = 0.0f;
    for (int64_t r = start; r < end; ++r) {
      const scalar_t* row = x + r * stride;
      int64_t j = 0;
      for (; j + LANES <= width; j += LANES) store(part + j, load(part + j) + load(row + j));
      for (; j < width; ++j) part[j] += row[j];
    }
    for (int64_t j = 0; j < width; ++j) total[j] += part[j];
  }
}

extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner) {
  const bool parallel = outer * reduce * inner >= PARALLEL_FROM;
  if (inner == 1) {
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t o = 0; o < outer / ABREAST; ++o)
      sum_runs(x + o * ABREAST * reduce, y + o * ABREAST, reduce);
    for (int64_t o = outer / ABREAST * ABREAST; o < outer; ++o)
      y[o] = sum_run(x + o * reduce, reduce);
    return 0;
  }
  const int64_t tiles = (inner + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t job = 0; job < outer * tiles; ++job) {
    const int64_t o = job / tiles, first = job % tiles * TILE;
    const int64_t width = inner - first < TILE ? inner - first : TILE;
    float total[TILE];
    add_rows(x + o * reduce * inner + first, total, reduce, width, inner);
    for (int64_t j = 0; j < width; ++j) y[o * inner + first + j] = total[j];
  }
  return 0;
}
