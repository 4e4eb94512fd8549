// Attention of grouped queries on tensor cores: the queries of a group are rows of one tile, see
// portkern/attention_tiles.h; on Hopper many of 16 bits by portkern/flash_attention.h. Few rows of float32, and
// long ones, meet their keys by lanes, see portkern/grouped_rows.h.
#define WARPS 4  // knob: 2 4
#define SPLIT_BELOW 396  // knob: 264 396 528
#define PART_FROM 256  // knob: 128 256 512
#define FLASH_FROM 128  // knob: 64 128 256
#define FLASH_FILLS 75  // knob: 50 75 100
#define TILES_FROM 16  // knob: 4 16 64
#define BLOCK 128  // knob: 64 128 256
#define FILL 528  // knob: 264 528 1056
#include <portkern/attention_tiles.h>
#include <portkern/grouped_rows.h>
#if defined(PORTKERN_HOPPER) && !defined(PORTKERN_FLOAT32)
#include <portkern/flash_attention.h>
#endif

constexpr int MOST = HALVES ? 256 : 128;  // the sums of a longer row have no room

extern "C" int grouped_attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y, int64_t batch,
                                 int64_t kv_heads, int64_t group, int64_t queries, int64_t keys, int64_t dim,
                                 int64_t window, float softcap, cudaStream_t stream) {
    const int64_t heads = batch * kv_heads, rows = group * queries;
    if (heads * rows * dim == 0) return 0;
    const float root = sqrtf((float)dim);
    if (keys == 0 || dim > MOST || keys >= 1ll << 30 || rows >= 1ll << 30 || (!HALVES && rows < TILES_FROM))
        return grouped::start({q, k, v, y, heads, rows, queries, keys, dim, window, 1.0f / root, softcap, 1}, stream);
    const Grouped sight = {rows, queries, keys, min(window, keys), softcap > 0.0f ? 1.0f / (root * softcap) : 0.0f,
                           softcap > 0.0f ? root * softcap : 0.0f};
#if defined(PORTKERN_HOPPER) && !defined(PORTKERN_FLOAT32)
    if (flash::takes(q, k, v, y, heads, sight, dim)) return flash::start(q, k, v, y, heads, sight, dim, stream);
#endif
    if constexpr (HALVES)
        if (dim > 128) return run<256, 2>(q, k, v, y, heads, sight, dim, stream);
    const auto start = dim <= 32   ? run<32, 2, Grouped>
                       : dim <= 64 ? run<64, 2, Grouped>
                       : dim <= 96 ? run<96, 2, Grouped>
                                   : run<128, 2, Grouped>;
    return start(q, k, v, y, heads, sight, dim, stream);
}
