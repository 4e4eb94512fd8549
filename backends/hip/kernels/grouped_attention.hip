// Attention of grouped queries by lanes along a head's elements, see portkern/grouped_rows.h. Many queries are
// taken so as well, without matrix units.
#define BLOCK 128  // knob: 64 128 256
#define FILL 528  // knob: 264 528 1056
#include <portkern/grouped_rows.h>

extern "C" int grouped_attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y, int64_t batch,
                                 int64_t kv_heads, int64_t group, int64_t queries, int64_t keys, int64_t dim,
                                 int64_t window, float softcap, hipStream_t stream) {
    const int64_t heads = batch * kv_heads, rows = group * queries;
    if (heads * rows * dim == 0) return 0;
    return grouped::start({q, k, v, y, heads, rows, queries, keys, dim, window, 1.0f / sqrtf((float)dim), softcap, 1},
                          stream);
}
