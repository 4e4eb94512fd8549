// Attention with a running maximum, a page of keys or a part of it at a time; threads take heads of sequences.
#define PARALLEL_FROM 65536  // knob: 16384 65536 262144
#define KEYS 64              // knob: 32 64 128
#define SHARED 4             // knob: 2 4 8
#include <portkern/attend.h>

extern "C" int paged_attention(const scalar_t* q, const scalar_t* key_pages, const scalar_t* value_pages,
                               const int32_t* table, const int32_t* lengths, scalar_t* y, int64_t seqs,
                               int64_t kv_heads, int64_t group, int64_t dim, int64_t pages, int64_t page,
                               int64_t slots) {
  const int64_t sets = (group + SHARED - 1) / SHARED, jobs = seqs * kv_heads * sets, step = kv_heads * dim;
  const int64_t wide = (dim + LANES - 1) / LANES * LANES;
  if (jobs == 0 || dim == 0) return 0;
  const float scale = 1.0f / sqrtf(float(dim));
  bool failed = false;
#pragma omp parallel if (jobs * slots * page * dim >= PARALLEL_FROM)
  {
    float* const room = static_cast<float*>(malloc(size_t(2 * SHARED * wide) * sizeof(float)));
    if (!room) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp for schedule(dynamic)
    for (int64_t job = 0; job < jobs; ++job) {
      if (!room) continue;
      const int64_t seq = job / (kv_heads * sets), head = job / sets % kv_heads, first = job % sets * SHARED;
      const int64_t many = group - first < SHARED ? group - first : SHARED;
      const int64_t row = ((seq * kv_heads + head) * group + first) * dim, length = lengths[seq];
      Query all[SHARED];
      for (int64_t g = 0; g < many; ++g) all[g] = begun(room + g * 2 * wide, q + row + g * dim, dim, wide, scale);
      for (int64_t slot = 0; slot * page < length; ++slot) {
        const int64_t left = length - slot * page, here = left < page ? left : page;
        const int64_t start = table[seq * slots + slot] * page * step + head * dim;
        for (int64_t key = 0; key < here; key += KEYS) {
          const int64_t from = start + key * step, count = here - key < KEYS ? here - key : KEYS;
          attend(all, many, key_pages + from, value_pages + from, count, step, dim, wide, 0.0f);
        }
      }
      for (int64_t g = 0; g < many; ++g) finish(all[g], y + row + g * dim, dim);
    }
    free(room);
  }
  return failed ? 1 : 0;
}
