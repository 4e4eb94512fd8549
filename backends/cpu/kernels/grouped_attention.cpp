// Attention with a running maximum, a block of keys at a time; threads take queries. The queries of a group that
// stand at one place share what is read of the keys and values.
#include <stdlib.h>

#define PARALLEL_FROM 65536  // knob: 16384 65536 262144
#define KEYS 64              // knob: 32 64 128
#define SHARED 4             // knob: 2 4 8

// Rows of `wide` floats: whole vectors, with zeros behind `dim` elements.
struct Query {
  float *own, *sums;
  float scores[KEYS], most, total;
};

static vec part_of(const scalar_t* row, int64_t i, int64_t dim) {
  return dim - i < LANES ? load(row + i, dim - i) : load(row + i);
}

// What `count` keys from `k` and values from `v` on add to queries.
static void attend(Query* queries, int64_t many, const scalar_t* k, const scalar_t* v, int64_t count, int64_t dim,
                   int64_t wide, float softcap) {
  for (int64_t key = 0; key < count; ++key) {
    vec total[SHARED] = {};
    for (int64_t i = 0; i < wide; i += LANES) {
      const vec one = part_of(k + key * dim, i, dim);
      for (int64_t g = 0; g < many; ++g) total[g] += one * load(queries[g].own + i);
    }
    for (int64_t g = 0; g < many; ++g) {
      const float score = reduce_add(total[g]);
      queries[g].scores[key] = softcap > 0.0f ? softcap * tanhf(score / softcap) : score;
    }
  }
  for (int64_t g = 0; g < many; ++g) {
    Query& q = queries[g];
    float most = q.most;
    for (int64_t key = 0; key < count; ++key) most = fmaxf(most, q.scores[key]);
    const float before = expf(q.most - most);
    q.total *= before, q.most = most;
    for (int64_t i = 0; i < wide; i += LANES) store(q.sums + i, load(q.sums + i) * before);
    for (int64_t key = 0; key < count; ++key) q.total += q.scores[key] = expf(q.scores[key] - most);
  }
  for (int64_t i = 0; i < wide; i += LANES) {
    vec sums[SHARED];
    for (int64_t g = 0; g < many; ++g) sums[g] = load(queries[g].sums + i);
    for (int64_t key = 0; key < count; ++key) {
      const vec one = part_of(v + key * dim, i, dim);
      for (int64_t g = 0; g < many; ++g) sums[g] += one * queries[g].scores[key];
    }
    for (int64_t g = 0; g < many; ++g) store(queries[g].sums + i, sums[g]);
  }
}

extern "C" int grouped_attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y, int64_t batch,
                                 int64_t kv_heads, int64_t group, int64_t queries, int64_t keys, int64_t dim,
                                 int64_t window, float softcap) {
  const int64_t heads = batch * kv_heads, sets = (group + SHARED - 1) / SHARED, jobs = heads * sets * queries;
  const int64_t wide = (dim + LANES - 1) / LANES * LANES;
  if (jobs == 0 || dim == 0) return 0;
  const float scale = 1.0f / sqrtf(float(dim));
  bool failed = false;
#pragma omp parallel if (jobs * keys * dim >= PARALLEL_FROM)
  {
    float* const room = static_cast<float*>(malloc(size_t(2 * SHARED * wide) * sizeof(float)));
    if (!room) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp for schedule(dynamic, 4)
    for (int64_t job = 0; job < jobs; ++job) {
      if (!room) continue;
      const int64_t head = job / (sets * queries), first = job / queries % sets * SHARED, at = job % queries;
      const int64_t many = group - first < SHARED ? group - first : SHARED, place = keys - queries + at;
      const auto row = [&](int64_t g) { return ((head * group + first + g) * queries + at) * dim; };
      Query all[SHARED];
      for (int64_t g = 0; g < many; ++g) {
        all[g].own = room + g * 2 * wide, all[g].sums = all[g].own + wide;
        all[g].most = -3.402823466e38f, all[g].total = 0.0f;
        for (int64_t i = 0; i < wide; ++i)
          all[g].own[i] = i < dim ? float(q[row(g) + i]) * scale : 0.0f, all[g].sums[i] = 0.0f;
      }
      const int64_t from = window > 0 && place - window + 1 > 0 ? place - window + 1 : 0;
      for (int64_t key = from; key <= place; key += KEYS) {
        const int64_t start = (head * keys + key) * dim, count = place + 1 - key < KEYS ? place + 1 - key : KEYS;
        attend(all, many, k + start, v + start, count, dim, wide, softcap);
      }
      for (int64_t g = 0; g < many; ++g)
        for (int64_t i = 0; i < dim; ++i) y[row(g) + i] = all[g].total == 0.0f ? 0.0f : all[g].sums[i] / all[g].total;
    }
    free(room);
  }
  return failed ? 1 : 0;
}
