// Attention of grouped queries, as decoding needs it: a few rows, the queries of a group, meet each key and value
// once. Lanes lie along a head's elements; every group of lanes has keys of its own, with their largest score, and
// what groups found is put together at the end, by a second kernel where blocks share the keys of a row.
// BLOCK and FILL are the including source's.
#pragma once
#include <portkern/rows.h>

namespace grouped {
constexpr int AHEAD = 2, LEAST_KEYS = 256;  // keys on their way to a group, and those of a block at the least

struct Heads {
    const scalar_t *q, *k, *v;
    scalar_t* y;
    int64_t count, rows, queries, keys, dim, window;  // rows: the queries of a group, one after another
    float scale, softcap;
    int lanes;
};

// Blocks that share the keys of a tile of rows, and what each of them has of these; what they leave.
struct Shares {
    int64_t tiles, splits, span;
    float *sums, *notes;
};

// R rows, of whose elements a lane has P times V.
template <int R, int P, int V>
__global__ __launch_bounds__(BLOCK, 2) void attend(const Heads all, const Shares by) {
    __shared__ float room[BLOCK * P * V], largest[R][BLOCK], part[R][BLOCK];
    const int lanes = all.lanes, groups = BLOCK / lanes, group = threadIdx.x / lanes, lane = threadIdx.x & (lanes - 1);
    const int64_t split = blockIdx.x % by.splits, tile = blockIdx.x / by.splits % by.tiles;
    const int64_t head = blockIdx.x / by.splits / by.tiles, row0 = tile * R;
    float own[R][P][V], sums[R][P][V] = {}, most[R], total[R] = {};
    int64_t place[R], first = all.keys, last = 0;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const bool there = row0 + r < all.rows;
        most[r] = Max::start();
        place[r] = there ? all.keys - all.queries + (row0 + r) % all.queries : -1;
        if (there) first = min(first, all.window > 0 ? place[r] - all.window + 1 : 0), last = max(last, place[r] + 1);
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const int64_t at = (int64_t)(p * lanes + lane) * V + j;
                const bool inside = there && at < all.dim;
                own[r][p][j] = inside ? float(all.q[(head * all.rows + row0 + r) * all.dim + at]) * all.scale : 0.0f;
            }
    }
    first = max(max(first, (int64_t)0), split * by.span), last = min(last, (split + 1) * by.span);
    for (int64_t begin = first; begin < last; begin += AHEAD * groups) {
        Some<V> keys[AHEAD][P], values[AHEAD][P];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
#pragma unroll
            for (int p = 0; p < P; ++p) {
                const int64_t key = min(begin + u * groups + group, last - 1), at = (int64_t)(p * lanes + lane) * V;
                const int64_t from = (head * all.keys + key) * all.dim + (at < all.dim ? at : 0);
                keys[u][p] = *reinterpret_cast<const Some<V>*>(all.k + from);
                values[u][p] = *reinterpret_cast<const Some<V>*>(all.v + from);
            }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int64_t key = begin + u * groups + group;
#pragma unroll
            for (int r = 0; r < R; ++r) {
                float score = 0.0f;
#pragma unroll
                for (int p = 0; p < P; ++p)
#pragma unroll
                    for (int j = 0; j < V; ++j) score = fmaf(own[r][p][j], float(keys[u][p].at[j]), score);
                score = lane_reduce<Sum>(score, lanes);
                if (all.softcap > 0.0f) score = all.softcap * tanhf(score / all.softcap);
                if (key >= last || key > place[r] || (all.window > 0 && key <= place[r] - all.window)) continue;
                if (score > most[r]) {
                    const float before = exponential(most[r] - score);
                    total[r] *= before, most[r] = score;
#pragma unroll
                    for (int p = 0; p < P; ++p)
#pragma unroll
                        for (int j = 0; j < V; ++j) sums[r][p][j] *= before;
                }
                const float power = exponential(score - most[r]);
                total[r] += power;
#pragma unroll
                for (int p = 0; p < P; ++p)
#pragma unroll
                    for (int j = 0; j < V; ++j)
                        sums[r][p][j] = fmaf(power, float(values[u][p].at[j]), sums[r][p][j]);
            }
        }
    }
    if (lane == 0)
#pragma unroll
        for (int r = 0; r < R; ++r) largest[r][group] = most[r], part[r][group] = total[r];
    const int64_t lines = all.count * all.rows;
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
            for (int j = 0; j < V; ++j) room[(group * P * lanes + p * lanes + lane) * V + j] = sums[r][p][j] * factor;
        __syncthreads();
        if (row0 + r >= all.rows) continue;
        const int64_t line = head * all.rows + row0 + r, at = split * lines + line;
        for (int d = threadIdx.x; d < all.dim; d += BLOCK) {
            float sum = 0.0f;
            for (int g = 0; g < groups; ++g) sum += room[g * P * lanes * V + d];
            if (by.sums) by.sums[at * all.dim + d] = sum;
            else all.y[line * all.dim + d] = scalar_t(whole == 0.0f ? 0.0f : sum / whole);
        }
        if (by.sums && threadIdx.x == 0) by.notes[2 * at] = top, by.notes[2 * at + 1] = whole;
    }
}

__global__ __launch_bounds__(BLOCK) void put_together(const Heads all, const Shares by) {
    const int64_t line = blockIdx.x, lines = all.count * all.rows;
    float top = Max::start(), whole = 0.0f;
    for (int64_t s = 0; s < by.splits; ++s) top = fmaxf(top, by.notes[2 * (s * lines + line)]);
    for (int64_t s = 0; s < by.splits; ++s) {
        const float* note = by.notes + 2 * (s * lines + line);
        whole += note[1] * exponential(note[0] - top);
    }
    for (int64_t d = threadIdx.x; d < all.dim; d += BLOCK) {
        float sum = 0.0f;
        for (int64_t s = 0; s < by.splits; ++s)
            sum += by.sums[(s * lines + line) * all.dim + d] * exponential(by.notes[2 * (s * lines + line)] - top);
        all.y[line * all.dim + d] = scalar_t(whole == 0.0f ? 0.0f : sum / whole);
    }
}

template <int R, int P, int V>
int launch(const Heads& all, cudaStream_t stream) {
    const int64_t tiles = (all.rows + R - 1) / R;
    const int64_t wanted = splits_for(all.count * tiles, all.keys, FILL, LEAST_KEYS);
    const int64_t span = (all.keys + wanted - 1) / wanted, splits = span > 0 ? (all.keys + span - 1) / span : 1;
    const int64_t lines = all.count * all.rows;
    Scratch<float> room(splits > 1 ? splits * lines * (all.dim + 2) : 0, stream);
    if (room.error) return (int)room.error;
    const Shares by = {tiles, splits, span, room.data, room.data ? room.data + splits * lines * all.dim : nullptr};
    attend<R, P, V><<<(unsigned)(all.count * tiles * splits), BLOCK, 0, stream>>>(all, by);
    if (room.data) put_together<<<(unsigned)lines, BLOCK, 0, stream>>>(all, by);
    return (int)cudaGetLastError();
}

template <int P, int V>
int launch_rows(Heads all, cudaStream_t stream) {
    all.lanes = 1;
    while (all.lanes < WARP_SIZE_MIN && all.lanes * P * V < all.dim) all.lanes *= 2;
    constexpr int TOGETHER = P < 16 ? 4 : 2;  // rows whose queries and sums the registers of a lane hold
    return all.rows > 1 ? launch<TOGETHER, P, V>(all, stream) : launch<1, P, V>(all, stream);
}

// By as few elements to a lane as a head has room for; cudaErrorInvalidValue where it has too many.
inline int start(const Heads& all, cudaStream_t stream) {
    const bool whole = are_whole((uintptr_t)all.k | (uintptr_t)all.v, all.dim);
    if (whole && all.dim <= WARP_SIZE_MIN * VEC) return launch_rows<1, VEC>(all, stream);
    if (whole && all.dim <= WARP_SIZE_MIN * 2 * VEC) return launch_rows<2, VEC>(all, stream);
    if (all.dim <= WARP_SIZE_MIN * 8) return launch_rows<8, 1>(all, stream);
    return all.dim <= WARP_SIZE_MIN * 16 ? launch_rows<16, 1>(all, stream) : (int)cudaErrorInvalidValue;
}
}  // namespace grouped
