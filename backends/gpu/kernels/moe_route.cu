// The k largest logits of each token, and their softmax. Up to sixteen are kept in registers by the lanes that share a
// token (few_largest.h). Of more, lanes find the largest that comes after the one chosen before, as often as asked for.
#define BLOCK 128  // knob: 64 128 256
#include <portkern/few_largest.h>
#include <portkern/rows.h>

constexpr int MOST_LANES = 32, MOST_FEW = 16;

// Where a key's logit lies, or -1 where it is nobody's, as a NaN's: a row that has one has fewer than are asked for.
__device__ __forceinline__ int place_of(Exact::Key key, int experts) {
    const int at = Exact::place(key);
    return key >> 32 && at < experts ? at : -1;
}

// LANES have a token, each of which keeps the K largest logits that it has seen.
template <int LANES, int K, int V>
__global__ __launch_bounds__(BLOCK) void route_few(const scalar_t* logits, scalar_t* gates, int64_t* chosen,
                                                   int64_t tokens, int experts, int kept, unsigned mask) {
    const int64_t own = group_of_lanes(LANES), token = min(own, tokens - 1);
    const int lane = threadIdx.x % LANES;
    const scalar_t* row = logits + token * experts;
    int places[K];
    const Quick quick = {mask};
    Quick::Key out;
    const auto best = few_largest<LANES, K, V>(row, experts, lane, quick, out);
    if (warp_all(quick.knows(best, out, kept))) {
#pragma unroll
        for (int i = 0; i < K; ++i) places[i] = quick.place(best.at[i]);
    } else {
        Exact::Key beyond;
        const auto sure = few_largest<LANES, K, V>(row, experts, lane, Exact{0}, beyond);
#pragma unroll
        for (int i = 0; i < K; ++i) places[i] = place_of(sure.at[i], experts);
    }
    float values[K], total = 0.0f;
#pragma unroll
    for (int i = 0; i < K; ++i) {
        values[i] = i < kept && places[i] >= 0 ? float(row[places[i]]) : __int_as_float(0xff800000);
        if (i < kept) total += expf(values[i] - values[0]);
    }
    each_own<LANES, K>(places, lane, [&](int i, int place) {
        if (i < kept && own < tokens) chosen[token * kept + i] = place >= 0 ? place : experts - 1;
    });
    each_own<LANES, K>(values, lane, [&](int i, float value) {
        if (i < kept && own < tokens) gates[token * kept + i] = scalar_t(expf(value - values[0]) / total);
    });
}

// MOST_LANES have a token, and look at its logits again for each choice.
__global__ __launch_bounds__(BLOCK) void route_many(const scalar_t* logits, scalar_t* gates, int64_t* chosen,
                                                    int64_t tokens, int experts, int kept) {
    const int64_t own = group_of_lanes(MOST_LANES), token = min(own, tokens - 1);
    const int lane = threadIdx.x % MOST_LANES;
    const scalar_t* row = logits + token * experts;
    Exact::Key last = ~(Exact::Key)0;
    float top = 0.0f, total = 0.0f;
    for (int j = 0; j < kept; ++j) {
        Exact::Key best = 0;
        for (int at = lane; at < experts; at += MOST_LANES) {
            const Some<1> one = {row[at]};
            Exact::Key key;
            Exact{0}.keys(one, at, 1, &key);
            if (key < last && key > best) best = key;
        }
#pragma unroll
        for (int d = MOST_LANES / 2; d > 0; d /= 2) best = max(best, warp_shuffle_xor(best, d));
        last = best;
        const int place = place_of(best, experts);
        const float value = place >= 0 ? float(row[place]) : __int_as_float(0xff800000);
        if (j == 0) top = value;
        total += expf(value - top);
        if (j % MOST_LANES == lane && own < tokens) chosen[token * kept + j] = place >= 0 ? place : experts - 1;
    }
    if (own < tokens)
        for (int j = lane; j < kept; j += MOST_LANES) {  // each lane's own choices
            const float value = float(row[chosen[token * kept + j]]);
            gates[token * kept + j] = scalar_t(expf(value - top) / total);
        }
}

template <int LANES, int K = 4>
int launch_few(const scalar_t* logits, scalar_t* gates, int64_t* chosen, int64_t tokens, int64_t experts, int64_t kept,
               cudaStream_t stream) {
    if constexpr (K < MOST_FEW)
        if (kept > K) return launch_few<LANES, 2 * K>(logits, gates, chosen, tokens, experts, kept, stream);
    const auto kernel = are_whole((uintptr_t)logits, experts) ? route_few<LANES, K, VEC> : route_few<LANES, K, 1>;
    const unsigned blocks = (unsigned)((tokens * LANES + BLOCK - 1) / BLOCK);
    kernel<<<blocks, BLOCK, 0, stream>>>(logits, gates, chosen, tokens, (int)experts, (int)kept,
                                        Quick::mask_of(experts));
    return (int)cudaGetLastError();
}

extern "C" int moe_route(const scalar_t* logits, scalar_t* gates, int64_t* chosen, int64_t tokens, int64_t experts,
                         int64_t kept, int64_t k, cudaStream_t stream) {
    if (tokens == 0 || kept == 0) return 0;
    if (kept <= MOST_FEW && experts <= 1 << 15) {
        const auto start = experts <= 16                      ? launch_few<1>
                           : experts <= 128 && tokens >= 4096 ? launch_few<4>
                                                              : launch_few<16>;
        return start(logits, gates, chosen, tokens, experts, kept, stream);
    }
    const unsigned blocks = (unsigned)((tokens * MOST_LANES + BLOCK - 1) / BLOCK);
    route_many<<<blocks, BLOCK, 0, stream>>>(logits, gates, chosen, tokens, (int)experts, (int)kept);
    return (int)cudaGetLastError();
}
