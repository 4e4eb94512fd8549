// Attention with a running maximum, a block of keys at a time; threads take queries. The queries of a group that
// stand at one place share what is read of the keys and values.
#define PARALLEL_FROM 65536  // knob: 16384 65536 262144
#define KEYS 64              // knob: 32 64 128
#define SHARED 4             // knob: 2 4 8
#include <portkern/attend.h>

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
      for (int64_t g = 0; g < many; ++g) all[g] = begun(room + g * 2 * wide, q + row(g), dim, wide, scale);
      const int64_t from = window > 0 && place - window + 1 > 0 ? place - window + 1 : 0;
      for (int64_t key = from; key <= place; key += KEYS) {
        const int64_t start = (head * keys + key) * dim, count = place + 1 - key < KEYS ? place + 1 - key : KEYS;
        attend(all, many, k + start, v + start, count, dim, dim, wide, softcap);
      }
      for (int64_t g = 0; g < many; ++g) finish(all[g], y + row(g), dim);
    }
    free(room);
  }
  return failed ? 1 : 0;
}
