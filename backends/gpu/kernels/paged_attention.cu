// Attention of one query per sequence over keys in pages. Lanes lie along a head's elements, and every group of lanes
// has keys of its own, of which AHEAD are on their way at once; the queries of a group meet each of them together.
// Blocks share the positions of a sequence, and a second kernel puts together what they found.
#define BLOCK 128  // knob: 64 128 256
#define FILL 1056  // knob: 528 1056 2112
#define ROWS 4  // knob: 2 4
#include <portkern/rows.h>

constexpr int LEAST_KEYS = 256;  // of a block, at the least

struct Heads {
    const scalar_t *q, *key_pages, *value_pages;
    const int32_t *table, *lengths;
    scalar_t* y;
    int64_t heads, group, dim, page, slots, lines;  // lines: queries of all sequences and heads
    float scale;
    int lanes;
};

// Blocks that share the positions of a tile of queries, and how many each of them has; what they leave.
struct Shares {
    int64_t tiles, splits, span;
    float *sums, *notes;
};

// R queries of a group, of whose elements a lane has P times V.
template <int R, int P, int V>
__global__ __launch_bounds__(BLOCK, 2) void attend(const Heads all, const Shares by) {
    constexpr int AHEAD = P * V <= 8 ? 4 : 2;
    __shared__ float room[BLOCK * P * V], largest[R][BLOCK], part[R][BLOCK];
    const int lanes = all.lanes, groups = BLOCK / lanes, own = threadIdx.x / lanes, lane = threadIdx.x & (lanes - 1);
    const int64_t split = blockIdx.x % by.splits, tile = blockIdx.x / by.splits % by.tiles;
    const int64_t head = blockIdx.x / by.splits / by.tiles, seq = head / all.heads, row0 = tile * R;
    const int64_t first = split * by.span, last = min((int64_t)all.lengths[seq], first + by.span);
    const int64_t step = all.heads * all.dim, column = (head - seq * all.heads) * all.dim;
    const int32_t* table = all.table + seq * all.slots;
    float query[R][P][V], sums[R][P][V] = {}, most[R], total[R] = {};
#pragma unroll
    for (int r = 0; r < R; ++r) {
        most[r] = Max::start();
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const int64_t at = (int64_t)(p * lanes + lane) * V + j;
                const bool inside = row0 + r < all.group && at < all.dim;
                query[r][p][j] = inside ? float(all.q[(head * all.group + row0 + r) * all.dim + at]) * all.scale : 0.0f;
            }
    }
    for (int64_t begin = first; begin < last; begin += AHEAD * groups) {
        Some<V> keys[AHEAD][P], values[AHEAD][P];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int64_t key = min(begin + u * groups + own, last - 1);
            const int64_t slot = (key | all.page) >> 32 ? key / all.page : (unsigned)key / (unsigned)all.page;
            const int64_t row = (table[slot] * all.page + key - slot * all.page) * step + column;
#pragma unroll
            for (int p = 0; p < P; ++p) {
                const int64_t at = (int64_t)(p * lanes + lane) * V, from = row + (at < all.dim ? at : 0);
                keys[u][p] = *reinterpret_cast<const Some<V>*>(all.key_pages + from);
                values[u][p] = *reinterpret_cast<const Some<V>*>(all.value_pages + from);
            }
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
            float scores[AHEAD], higher = most[r];
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) {
                float score = 0.0f;
#pragma unroll
                for (int p = 0; p < P; ++p)
#pragma unroll
                    for (int j = 0; j < V; ++j) score = fmaf(query[r][p][j], float(keys[u][p].at[j]), score);
                scores[u] = lane_reduce<Sum>(score, lanes);
                if (begin + u * groups + own < last) higher = fmaxf(higher, scores[u]);
            }
            const float before = exponential(most[r] - higher);
            total[r] *= before, most[r] = higher;
#pragma unroll
            for (int p = 0; p < P; ++p)
#pragma unroll
                for (int j = 0; j < V; ++j) sums[r][p][j] *= before;
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) {
                const bool seen = begin + u * groups + own < last;
                const float power = seen ? exponential(scores[u] - higher) : 0.0f;
                total[r] += power;
#pragma unroll
                for (int p = 0; p < P; ++p)
#pragma unroll
                    for (int j = 0; j < V; ++j) sums[r][p][j] = fmaf(power, float(values[u][p].at[j]), sums[r][p][j]);
            }
        }
    }
    if (lane == 0)
#pragma unroll
        for (int r = 0; r < R; ++r) largest[r][own] = most[r], part[r][own] = total[r];
#pragma unroll
    for (int r = 0; r < R; ++r) {
        __syncthreads();
        float top = Max::start(), whole = 0.0f;
        for (int g = 0; g < groups; ++g) top = fmaxf(top, largest[r][g]);
        for (int g = 0; g < groups; ++g) whole += part[r][g] * exponential(largest[r][g] - top);
        const float factor = exponential(most[r] - top);
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
            for (int j = 0; j < V; ++j) room[(own * P * lanes + p * lanes + lane) * V + j] = sums[r][p][j] * factor;
        __syncthreads();
        if (row0 + r >= all.group) continue;
        const int64_t line = head * all.group + row0 + r, at = split * all.lines + line;
        for (int d = threadIdx.x; d < all.dim && (first < last || !by.sums); d += BLOCK) {
            float sum = 0.0f;
            for (int g = 0; g < groups; ++g) sum += room[g * P * lanes * V + d];
            if (by.sums) by.sums[at * all.dim + d] = sum;
            else all.y[line * all.dim + d] = scalar_t(whole == 0.0f ? 0.0f : sum / whole);
        }
        if (by.sums && threadIdx.x == 0) by.notes[2 * at] = top, by.notes[2 * at + 1] = whole;
    }
}

// Of the parts that have positions: of others there are no sums.
__global__ __launch_bounds__(BLOCK) void put_together(const Heads all, const Shares by) {
    const int64_t line = blockIdx.x, seq = line / (all.heads * all.group);
    const int64_t parts = (all.lengths[seq] + by.span - 1) / by.span;
    float top = Max::start(), whole = 0.0f;
    for (int64_t s = 0; s < parts; ++s) top = fmaxf(top, by.notes[2 * (s * all.lines + line)]);
    for (int64_t s = 0; s < parts; ++s) {
        const float* note = by.notes + 2 * (s * all.lines + line);
        whole += note[1] * exponential(note[0] - top);
    }
    for (int64_t d = threadIdx.x; d < all.dim; d += BLOCK) {
        float sum = 0.0f;
        for (int64_t s = 0; s < parts; ++s)
            sum += by.sums[(s * all.lines + line) * all.dim + d] * exponential(by.notes[2 * (s * all.lines + line)] - top);
        all.y[line * all.dim + d] = scalar_t(whole == 0.0f ? 0.0f : sum / whole);
    }
}

template <int R, int P, int V>
int launch(const Heads& all, cudaStream_t stream) {
    const int64_t tiles = (all.group + R - 1) / R, heads = all.lines / all.group, keys = all.slots * all.page;
    const int64_t wanted = splits_for(heads * tiles, keys, FILL, LEAST_KEYS);
    const int64_t span = keys > 0 ? (keys + wanted - 1) / wanted : 1, splits = keys > 0 ? (keys + span - 1) / span : 1;
    Scratch<float> sums(splits > 1 ? splits * all.lines * (all.dim + 2) : 0, stream);
    if (sums.error) return (int)sums.error;
    const Shares by = {tiles, splits, span, sums.data, sums.data ? sums.data + splits * all.lines * all.dim : nullptr};
    attend<R, P, V><<<(unsigned)(heads * tiles * splits), BLOCK, 0, stream>>>(all, by);
    if (sums.data) put_together<<<(unsigned)all.lines, BLOCK, 0, stream>>>(all, by);
    return (int)cudaGetLastError();
}

template <int P, int V>
int launch_rows(Heads all, cudaStream_t stream) {
    all.lanes = 1;
    while (all.lanes < WARP_SIZE_MIN && all.lanes * P * V < all.dim) all.lanes *= 2;
    if constexpr (P * V <= 8)
        if (all.group > 2) return launch<ROWS, P, V>(all, stream);
    return all.group > 1 ? launch<2, P, V>(all, stream) : launch<1, P, V>(all, stream);
}

extern "C" int paged_attention(const scalar_t* q, const scalar_t* key_pages, const scalar_t* value_pages,
                               const int32_t* table, const int32_t* lengths, scalar_t* y, int64_t seqs,
                               int64_t kv_heads, int64_t group, int64_t dim, int64_t pages, int64_t page,
                               int64_t slots, cudaStream_t stream) {
    const int64_t lines = seqs * kv_heads * group;
    if (lines * dim == 0) return 0;
    const float scale = 1.0f / sqrtf((float)dim);
    const Heads all = {q, key_pages, value_pages, table, lengths, y, kv_heads, group, dim, page, slots, lines, scale, 1};
    const bool whole = are_whole((uintptr_t)key_pages | (uintptr_t)value_pages, dim);
    if (whole && dim <= WARP_SIZE_MIN * VEC) return launch_rows<1, VEC>(all, stream);
    if (whole && dim <= WARP_SIZE_MIN * 2 * VEC) return launch_rows<2, VEC>(all, stream);
    if (dim <= WARP_SIZE_MIN * 8) return launch_rows<8, 1>(all, stream);
    return dim <= WARP_SIZE_MIN * 16 ? launch_rows<16, 1>(all, stream) : (int)cudaErrorInvalidValue;
}
