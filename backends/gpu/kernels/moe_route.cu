// The k largest logits of each token by a group of lanes: the largest that comes after the one chosen before, as often
// as asked for. A logit and its place are one key, in the order in which they are chosen, so that a maximum is all
// there is to find. A lane keeps its keys of a short row in registers, of a longer one it looks in the cache again.
#define BLOCK 128  // knob: 64 128 256
#include <portkern/rows.h>

constexpr int HELD = 8, MOST_LANES = 32;

// Keys fall in the order of choice, of equal logits the first in front; 0 is nobody's, and a NaN's. Of 16 bits a
// SHORT row's are words.
template <bool SHORT>
struct Order {
    static constexpr bool WORD = SHORT && sizeof(scalar_t) == 2;
    static constexpr int BITS = WORD ? 16 : 32;  // of a place, and of a logit
    static constexpr unsigned SIGN = 1u << (BITS - 1), ALL = ~0u >> (32 - BITS);

    static __device__ __forceinline__ auto key(scalar_t logit, int at) {
        unsigned bits = 0;
        if constexpr (WORD) bits = *reinterpret_cast<const unsigned short*>(&logit);
        else bits = __float_as_uint(float(logit));
        bits = bits == SIGN ? 0 : bits;  // of the two zeros one
        const unsigned rank = bits ^ (bits & SIGN ? ALL : SIGN), from_end = ALL - (unsigned)at;
        const bool number = float(logit) == float(logit);
        if constexpr (WORD) return number ? rank << BITS | from_end : 0u;
        else return number ? (unsigned long long)rank << BITS | from_end : 0ull;
    }
    template <class Key>
    static __device__ __forceinline__ float logit(Key key) {
        const unsigned rank = (unsigned)(key >> BITS), bits = rank ^ (rank & SIGN ? SIGN : ALL);
        if constexpr (!WORD) return __uint_as_float(bits);
        const unsigned short own = (unsigned short)bits;
        return float(*reinterpret_cast<const scalar_t*>(&own));
    }
    template <class Key>
    static __device__ __forceinline__ int place(Key key) {
        return (int)(ALL - (unsigned)(key & ALL));
    }
};

// LANES have a token; PACKED: of a short row each takes neighbours by one access.
template <int LANES, bool SHORT, bool PACKED>
__global__ __launch_bounds__(BLOCK) void route(const scalar_t* logits, scalar_t* gates, int64_t* chosen, int64_t tokens,
                                               int experts, int kept) {
    using By = Order<SHORT>;
    using Key = decltype(By::key(scalar_t(0.0f), 0));
    const int64_t own = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / LANES, token = min(own, tokens - 1);
    const int lane = threadIdx.x % LANES;
    const scalar_t* row = logits + token * experts;
    Key held[SHORT ? HELD : 1];
    if constexpr (SHORT && PACKED) {
        const Some<HELD> all = reinterpret_cast<const Some<HELD>*>(row)[min(lane, experts / HELD - 1)];
#pragma unroll
        for (int u = 0; u < HELD; ++u) {
            const int at = lane * HELD + u;
            held[u] = at < experts ? By::key(all.at[u], at) : 0;
        }
    } else if constexpr (SHORT) {
        scalar_t all[HELD];
#pragma unroll
        for (int u = 0; u < HELD; ++u) all[u] = row[min(u * LANES + lane, experts - 1)];
#pragma unroll
        for (int u = 0; u < HELD; ++u) {
            const int at = u * LANES + lane;
            held[u] = at < experts ? By::key(all[u], at) : 0;
        }
    }
    Key last = ~(Key)0;
    float top = 0.0f, total = 0.0f;
    for (int j = 0; j < kept; ++j) {
        Key best = 0;
        const auto take = [&](Key key) {
            if (key < last && key > best) best = key;
        };
        if constexpr (SHORT) {
#pragma unroll
            for (int u = 0; u < HELD; ++u) take(held[u]);
        } else {
            for (int at = lane; at < experts; at += LANES) take(By::key(row[at], at));
        }
#pragma unroll
        for (int d = LANES / 2; d > 0; d /= 2) {
            const Key other = warp_shuffle_xor(best, d);
            best = other > best ? other : best;
        }
        last = best;
        // Of a row that has a NaN, fewer are found than asked for.
        const float value = best ? By::logit(best) : __int_as_float(0xff800000);
        if (j == 0) top = value;
        total += expf(value - top);
        if (j % LANES == lane && own < tokens) chosen[token * kept + j] = best ? By::place(best) : experts - 1;
    }
    if (own < tokens)
        for (int j = lane; j < kept; j += LANES) {  // each lane's own choices
            const float value = float(row[chosen[token * kept + j]]);
            gates[token * kept + j] = scalar_t(expf(value - top) / total);
        }
}

template <int LANES>
int launch(const scalar_t* logits, scalar_t* gates, int64_t* chosen, int64_t tokens, int64_t experts, int64_t kept,
           cudaStream_t stream) {
    const bool packed = experts % HELD == 0 && (uintptr_t)logits % sizeof(Some<HELD>) == 0;
    const auto kernel = experts > HELD * LANES ? route<LANES, false, false>
                        : packed               ? route<LANES, true, true>
                                               : route<LANES, true, false>;
    const unsigned blocks = (unsigned)((tokens * LANES + BLOCK - 1) / BLOCK);
    kernel<<<blocks, BLOCK, 0, stream>>>(logits, gates, chosen, tokens, (int)experts, (int)kept);
    return (int)cudaGetLastError();
}

extern "C" int moe_route(const scalar_t* logits, scalar_t* gates, int64_t* chosen, int64_t tokens, int64_t experts,
                         int64_t kept, int64_t k, cudaStream_t stream) {
    if (tokens == 0 || kept == 0) return 0;
    const auto start = experts <= HELD ? launch<1> : experts <= 4 * HELD ? launch<4> : experts <= 16 * HELD ? launch<16>
                                                                                                          : launch<MOST_LANES>;
    return start(logits, gates, chosen, tokens, experts, kept, stream);
}
