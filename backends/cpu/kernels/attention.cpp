#include <stdlib.h>

#define PARALLEL_FROM 100000  // knob: 30000 100000 300000
#define KEYS 64               // knob: 32 64 128
#define PANELS 2              // knob: 1 2 4
#define FEW 16                // knob: 1 8 16

// A block of keys at a time, with a running maximum. The lanes of a vector are queries: scores lie
// as [key][query] and sums as [dim][query], so that maxima and powers need no other lane, and both
// products take single elements of k and v as they lie in memory.

// The registers of one micro-tile: MR keys (or elements of v) of NV vectors of queries, of which
// there are fewer where the sequence is short.
#if defined(__AVX512F__) || defined(__ARM_NEON)
enum { MR = 8, MOST = 3 };
#elif defined(__AVX__)
enum { MR = 4, MOST = 3 };
#else
enum { MR = 4, MOST = 2 };
#endif

template <int NV>
constexpr int64_t NR = NV * LANES;

PORTKERN_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// c += a * b, where a's rows are `row` elements apart and its columns `step`.
template <int NV>
PORTKERN_INLINE void multiply(const float* a, int64_t row, int64_t step, const float* b,
                              int64_t depth, vec (&c)[MR][NV]) {
  for (int64_t p = 0; p < depth; ++p, a += step, b += NR<NV>)
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) c[r][v] += a[r * row] * load(b + v * LANES);
}

// NR queries, from number `query` on.
template <int NV>
struct Panel {
  int64_t query;
  float *q, *sums;  // [dim][NR], of which `sums` has room for a multiple of MR rows
  vec top[NV], total[NV];
};

// Scores of `count` keys, a multiple of MR; those that come after their query are -infinity.
template <int NV>
static void score(Panel<NV>& panel, const float* k, int64_t key, int64_t count, int64_t dim,
                  int64_t wide, float* scores) {
  ivec lane;
  for (int i = 0; i < LANES; ++i) lane[i] = i;
  for (int64_t j = 0; j < count; j += MR) {
    vec c[MR][NV] = {};
    multiply(k + j * wide, wide, 1, panel.q, dim, c);
    const int64_t ahead = key + j - panel.query;
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        if (ahead + MR > 0)
          c[r][v] = lane < int32_t(ahead + r - v * LANES) ? splat(-INFINITY) : c[r][v];
        panel.top[v] = max(c[r][v], panel.top[v]);
        store(scores + (j + r) * NR<NV> + v * LANES, c[r][v]);
      }
  }
}

// One block of keys: its weights, and its part of the sums, whose former parts shrink as the
// maximum grows.
template <int NV>
static void attend(Panel<NV>& panel, const float* k, const float* v, int64_t key, int64_t count,
                   int64_t dim, int64_t wide, float* scores) {
  vec shrink[NV], sum[NV] = {};
  for (int i = 0; i < NV; ++i) shrink[i] = panel.top[i];
  score(panel, k, key, count, dim, wide, scores);
  for (int i = 0; i < NV; ++i) shrink[i] = exp(shrink[i] - panel.top[i]);
  for (int64_t j = 0; j < count; ++j)
#pragma GCC unroll 4
    for (int i = 0; i < NV; ++i) {
      float* at = scores + j * NR<NV> + i * LANES;
      const vec weight = exp(load(at) - panel.top[i]);
      sum[i] += weight;
      store(at, weight);
    }
  for (int i = 0; i < NV; ++i) panel.total[i] = panel.total[i] * shrink[i] + sum[i];
  for (int64_t d = 0; d < wide; d += MR) {
    vec c[MR][NV] = {};
    multiply(v + d, 1, wide, scores, count, c);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < NV; ++i) {
        float* at = panel.sums + (d + r) * NR<NV> + i * LANES;
        store(at, load(at) * shrink[i] + c[r][i]);
      }
  }
}

// Rows of `dim` elements to rows of `wide`; those after the last, up to a multiple of MR, are zeros.
static void copy_rows(const scalar_t* from, float* to, int64_t rows, int64_t dim, int64_t wide) {
  for (int64_t r = 0; r < (rows + MR - 1) / MR * MR; ++r)
    for (int64_t d = 0; d < wide; ++d)
      to[r * wide + d] = r < rows && d < dim ? float(from[r * dim + d]) : 0.0f;
}

// The queries scaled and turned, so that lanes are queries.
template <int NV>
static void begin(Panel<NV>& panel, const scalar_t* q, int64_t length, int64_t dim, int64_t wide) {
  const float scale = 1.0f / sqrtf(float(dim));
  const int64_t count = least(length - panel.query, NR<NV>);
  if (count < NR<NV>) memset(panel.q, 0, size_t(dim * NR<NV>) * sizeof(float));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t d = 0; d < dim; ++d)
      panel.q[d * NR<NV> + i] = scale * float(q[(panel.query + i) * dim + d]);
  memset(panel.sums, 0, size_t(wide * NR<NV>) * sizeof(float));
  for (int v = 0; v < NV; ++v) panel.top[v] = splat(-INFINITY), panel.total[v] = vec{};
}

template <int NV>
static void finish(const Panel<NV>& panel, scalar_t* y, int64_t length, int64_t dim) {
  for (int64_t i = 0; i < NR<NV> && panel.query + i < length; ++i)
    for (int64_t d = 0; d < dim; ++d)
      y[(panel.query + i) * dim + d] =
          panel.sums[d * NR<NV> + i] / panel.total[i / LANES][i % LANES];
}

template <int NV>
static int attention_of(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y,
                        int64_t batch, int64_t heads, int64_t length, int64_t dim) {
  if constexpr (NV > 1)
    if (length <= NR<NV - 1>) return attention_of<NV - 1>(q, k, v, y, batch, heads, length, dim);
  const int64_t wide = (dim + MR - 1) / MR * MR, queries = PANELS * NR<NV>;
  const int64_t blocks = (length + queries - 1) / queries;
  const int64_t floats = 2 * (queries + KEYS) * wide + KEYS * NR<NV>;
  int failed = 0;
#pragma omp parallel if (double(batch * heads) * length * length * dim >= PARALLEL_FROM)
  {
    float* room = static_cast<float*>(aligned_alloc(64, size_t(floats * 4 + 63) / 64 * 64));
#pragma omp for schedule(dynamic) reduction(| : failed)
    for (int64_t job = 0; job < batch * heads * blocks; ++job) {
      failed |= !room;
      if (failed) continue;
      float *k_rows = room, *v_rows = k_rows + KEYS * wide, *scores = v_rows + KEYS * wide;
      // The last block, which sees most keys, first: short jobs are left for the end.
      const int64_t head = job / blocks * length * dim;
      const int64_t first = (blocks - 1 - job % blocks) * queries;
      const int64_t end = least(first + queries, length);
      Panel<NV> panels[PANELS];
      const int used = int((end - first + NR<NV> - 1) / NR<NV>);
      for (int i = 0; i < used; ++i) {
        panels[i].query = first + i * NR<NV>;
        panels[i].q = scores + KEYS * NR<NV> + 2 * i * NR<NV> * wide;
        panels[i].sums = panels[i].q + NR<NV> * wide;
        begin(panels[i], q + head, length, dim, wide);
      }
      for (int64_t key = 0; key < end; key += KEYS) {
        copy_rows(k + head + key * dim, k_rows, least(end - key, KEYS), dim, wide);
        copy_rows(v + head + key * dim, v_rows, least(end - key, KEYS), dim, wide);
        for (int i = 0; i < used; ++i) {
          Panel<NV>& panel = panels[i];
          const int64_t seen = least(least(panel.query + NR<NV>, end) - key, KEYS);
          const int64_t count = (seen + MR - 1) / MR * MR;
          if (seen > 0)
            attend(panel, k_rows, v_rows, key, count, dim, wide, scores);
        }
      }
      for (int i = 0; i < used; ++i) finish(panels[i], y + head, length, dim);
    }
    free(room);
  }
  return failed;
}

// The last vectors overlap the ones before, where there are so many: to load some of one takes long.
PORTKERN_INLINE float dot(const scalar_t* a, const scalar_t* b, int64_t dim) {
  if (dim < LANES) return reduce_add(load(a, dim) * load(b, dim));
  const int64_t last = dim - LANES;
  vec sum = {};
  int64_t d = 0;
  for (; d <= last; d += LANES) sum += load(a + d) * load(b + d);
  if (d < dim) {
    ivec lane;
    for (int i = 0; i < LANES; ++i) lane[i] = i;
    const vec both = load(a + last) * load(b + last);
    sum += lane < int32_t(d - last) ? vec{} : both;
  }
  return reduce_add(sum);
}

// A query of a sequence of up to FEW keys, of which it sees `count`: lanes are dimensions, and nothing is turned.
static void attend_few(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y, int64_t count,
                       int64_t dim) {
  constexpr int64_t ROOM = (FEW + LANES - 1) / LANES * LANES;
  float weights[ROOM], top = -INFINITY, total = 0.0f;
  const float scale = 1.0f / sqrtf(float(dim));
  for (int64_t j = 0; j < ROOM; ++j) weights[j] = j < count ? scale * dot(q, k + j * dim, dim) : -INFINITY;
  for (int64_t j = 0; j < count; ++j) top = weights[j] > top ? weights[j] : top;
  for (int64_t j = 0; j < count; j += LANES) {
    const vec weight = exp(load(weights + j) - top);
    store(weights + j, weight);
    total += reduce_add(weight);
  }
  const float share = 1.0f / total;
  const auto sum = [&](auto take) {
    vec sums = {};
    for (int64_t j = 0; j < count; ++j) sums += weights[j] * take(v + j * dim);
    return sums * share;
  };
  if (dim < LANES) return store(y, sum([=](const scalar_t* at) { return load(at, dim); }), dim);
  for (int64_t d = 0; d < dim; d += LANES) {
    const int64_t from = least(d, dim - LANES);
    store(y + from, sum([=](const scalar_t* at) { return load(at + from); }));
  }
}

static int attention_to_few(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y,
                            int64_t heads, int64_t length, int64_t dim) {
  const int64_t rows = heads * length;
#pragma omp parallel for schedule(static) if (double(rows) * length * dim >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row / length * length;
    attend_few(q + row * dim, k + first * dim, v + first * dim, y + row * dim, row - first + 1, dim);
  }
  return 0;
}

extern "C" int attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y,
                         int64_t batch, int64_t heads, int64_t length, int64_t dim) {
  if (length <= FEW) return attention_to_few(q, k, v, y, batch * heads, length, dim);
  return attention_of<MOST>(q, k, v, y, batch, heads, length, dim);
}
