// The k largest logits of each token by one warp: the largest that comes after the one chosen before, as often as
// asked for. A lane keeps what it has of a short row in registers, of a longer one it looks in the cache again.
#define BLOCK 128  // knob: 64 128 256
#include <portkern/rows.h>

constexpr int HELD = 8;  // elements of a lane

struct Chosen {
    float value;
    int at;
};

// Whether a comes before b, as equal ones do that are further in front.
__device__ __forceinline__ bool ahead(float a, int a_at, float b, int b_at) {
    return a > b || (a == b && a_at < b_at);
}

template <bool SHORT>
__global__ __launch_bounds__(BLOCK) void route(const scalar_t* logits, scalar_t* gates, int64_t* chosen, int64_t tokens,
                                               int experts, int kept) {
    const int64_t token = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / WARP_SIZE;
    const int lane = threadIdx.x % WARP_SIZE;
    if (token >= tokens) return;  // of a whole warp
    const scalar_t* row = logits + token * experts;
    float held[SHORT ? HELD : 1];
    if constexpr (SHORT)
#pragma unroll
        for (int u = 0; u < HELD; ++u) held[u] = float(row[min(u * WARP_SIZE + lane, experts - 1)]);
    Chosen last = {__int_as_float(0x7f800000), -1};
    float top = 0.0f, total = 0.0f;
    for (int j = 0; j < kept; ++j) {
        Chosen best = {__int_as_float(0xff800000), experts};
        const auto take = [&](float value, int at) {
            if (at < experts && ahead(last.value, last.at, value, at) && ahead(value, at, best.value, best.at))
                best = {value, at};
        };
        if constexpr (SHORT) {
#pragma unroll
            for (int u = 0; u < HELD; ++u) take(held[u], u * WARP_SIZE + lane);
        } else {
            for (int at = lane; at < experts; at += WARP_SIZE) take(float(row[at]), at);
        }
        for (int d = WARP_SIZE / 2; d > 0; d /= 2) {
            const Chosen other = {warp_shuffle_xor(best.value, d), warp_shuffle_xor(best.at, d)};
            if (ahead(other.value, other.at, best.value, best.at)) best = other;
        }
        last = best;
        if (j == 0) top = best.value;
        total += expf(best.value - top);
        // Of a row that has a NaN, fewer are found than asked for.
        if (j % WARP_SIZE == lane) chosen[token * kept + j] = min(best.at, experts - 1);
    }
    for (int j = lane; j < kept; j += WARP_SIZE) {  // each lane's own choices
        const float value = float(row[chosen[token * kept + j]]);
        gates[token * kept + j] = scalar_t(expf(value - top) / total);
    }
}

extern "C" int moe_route(const scalar_t* logits, scalar_t* gates, int64_t* chosen, int64_t tokens, int64_t experts,
                         int64_t kept, int64_t k, cudaStream_t stream) {
    if (tokens == 0 || kept == 0) return 0;
    // As many threads as a warp has at most, on AMD's GPUs.
    const unsigned blocks = (unsigned)((tokens * WARP_SIZE_MAX + BLOCK - 1) / BLOCK);
    if (experts <= HELD * WARP_SIZE_MIN)
        route<true><<<blocks, BLOCK, 0, stream>>>(logits, gates, chosen, tokens, (int)experts, (int)kept);
    else route<false><<<blocks, BLOCK, 0, stream>>>(logits, gates, chosen, tokens, (int)experts, (int)kept);
    return (int)cudaGetLastError();
}
