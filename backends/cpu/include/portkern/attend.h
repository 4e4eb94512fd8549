// Attention with a running maximum, a block of KEYS keys at a time, of up to SHARED queries that share what is read
// of keys and values.
#pragma once
#include <stdlib.h>

// Rows of `wide` floats: whole vectors, with zeros behind `dim` elements.
struct Query {
  float *own, *sums;
  float scores[KEYS], most, total;
};

static vec part_of(const scalar_t* row, int64_t i, int64_t dim) {
  return dim - i < LANES ? load(row + i, dim - i) : load(row + i);
}

// What `count` keys from `k` and values from `v` on, `step` elements apart, add to queries.
static void attend(Query* queries, int64_t many, const scalar_t* k, const scalar_t* v, int64_t count, int64_t step,
                   int64_t dim, int64_t wide, float softcap) {
  for (int64_t key = 0; key < count; ++key) {
    vec total[SHARED] = {};
    for (int64_t i = 0; i < wide; i += LANES) {
      const vec one = part_of(k + key * step, i, dim);
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
      const vec one = part_of(v + key * step, i, dim);
      for (int64_t g = 0; g < many; ++g) sums[g] += one * queries[g].scores[key];
    }
    for (int64_t g = 0; g < many; ++g) store(queries[g].sums + i, sums[g]);
  }
}

// A query before it has met a key, in `room` for 2 `wide` floats.
static Query begun(float* room, const scalar_t* q, int64_t dim, int64_t wide, float scale) {
  Query query;
  query.own = room, query.sums = room + wide, query.most = -3.402823466e38f, query.total = 0.0f;
  for (int64_t i = 0; i < wide; ++i) query.own[i] = i < dim ? float(q[i]) * scale : 0.0f, query.sums[i] = 0.0f;
  return query;
}

// What it has found; zeros where it met none.
static void finish(const Query& query, scalar_t* y, int64_t dim) {
  for (int64_t i = 0; i < dim; ++i) y[i] = query.total == 0.0f ? 0.0f : query.sums[i] / query.total;
}
