// The few largest of a row, sorted, by a group of lanes: each keeps the best that it has seen as keys in registers, which
// networks without branches sort and merge.
#pragma once
#include <portkern/packs.h>

constexpr int FEW_AHEAD = 4;  // packs

// K keys that fall.
template <class Key, int K>
struct Few {
    Key at[K];

    static __device__ __forceinline__ void exchange(Key& high, Key& low) {
        const Key larger = max(high, low);
        low = min(high, low);
        high = larger;
    }
    // Of keys in any order.
    __device__ __forceinline__ void sort() {
#pragma unroll
        for (int p = 1; p < K; p *= 2)
#pragma unroll
            for (int q = p; q > 0; q /= 2)
#pragma unroll
                for (int i = 0; i < K; ++i) {
                    const int from = q % p, turn = (i - from) / q;
                    if (i >= from && turn % 2 == 0 && i + q < K && i / (2 * p) == (i + q) / (2 * p))
                        exchange(at[i], at[i + q]);
                }
    }
    // Keeps the best of both; returns the best of the others.
    __device__ __forceinline__ Key take(const Few& more) {
        Key out = 0;
#pragma unroll
        for (int i = 0; i < K; ++i) {
            out = max(out, min(at[i], more.at[K - 1 - i]));
            at[i] = max(at[i], more.at[K - 1 - i]);
        }
#pragma unroll
        for (int d = K / 2; d > 0; d /= 2)
#pragma unroll
            for (int i = 0; i < K; ++i)
                if ((i & d) == 0) exchange(at[i], at[i + d]);
        return out;
    }
};

// Rises with the value; `nan` for a NaN.
__device__ __forceinline__ unsigned ordered(float value, unsigned nan) {
    const unsigned bits = __float_as_uint(value + 0.0f);  // -0 becomes +0
    return value != value ? nan : bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Exact: 32 bits of an order over 32 of a place, of equal values the first in front.
struct Exact {
    using Key = unsigned long long;
    unsigned nan;

    template <int N>
    __device__ __forceinline__ void keys(const Some<N>& pack, int column, int step, Key* to) const {
#pragma unroll
        for (int j = 0; j < N; ++j)
            to[j] = (Key)ordered(float(pack.at[j]), nan) << 32 | ~(unsigned)(column + j * step);
    }
    static __device__ __forceinline__ int place(Key key) { return (int)~(unsigned)key; }
};

// As many bits of the value as the place leaves of 32, which are all of 16-bit ones. An order is turned until that of
// -inf is 0, so that NaNs of either sign come first.
struct Quick {
    using Key = unsigned;
    unsigned mask;

    static constexpr bool SHORT = sizeof(scalar_t) == 2;

    // Of places: as many bits as `cols` take, and 16 of 16-bit values.
    static unsigned mask_of(int64_t cols) {
        unsigned mask = SHORT ? 0xffffu : 31u;
        while ((int64_t)mask + 1 < cols) mask = 2 * mask + 1;
        return mask;
    }
    // Of 16 bits the upper ones.
    static __device__ __forceinline__ unsigned bits_of(const scalar_t& value) {
        if constexpr (SHORT) return (unsigned)*reinterpret_cast<const unsigned short*>(&value) << 16;
        else return __float_as_uint(float(value));
    }
    static __device__ __forceinline__ unsigned infinity() { return bits_of(scalar_t(__int_as_float(0x7f800000))); }
    static __device__ __forceinline__ unsigned turned() {
        return (0x7fffffffu - infinity()) & (SHORT ? 0xffff0000u : ~0u);
    }

    template <int N>
    __device__ __forceinline__ void keys(const Some<N>& pack, int column, int step, Key* to) const {
        if constexpr (SHORT && N % 2 == 0) {
            unsigned words[N / 2];
            memcpy(words, &pack, sizeof pack);
            const unsigned less = (unsigned)column + turned();
#pragma unroll
            for (int w = 0; w < N / 2; ++w) {
                const unsigned word = words[w], order = word ^ ((word >> 15 & 0x10001u) * 0xffffu | 0x80008000u);
                to[2 * w] = (order << 16 | 0xffffu) - less - (unsigned)(2 * w * step);
                to[2 * w + 1] = (order | 0xffffu) - less - (unsigned)((2 * w + 1) * step);
            }
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                const unsigned bits = bits_of(pack.at[j]);
                const unsigned order = (bits ^ ((unsigned)((int)bits >> 31) | 0x80000000u)) - turned();
                to[j] = (order | mask) - (unsigned)(column + j * step);
            }
        }
    }
    __device__ __forceinline__ int place(Key key) const { return (int)(mask - (key & mask)); }

    // Whether the first k of these are known to be the k largest, in their order; `out`: the best of the others.
    template <int K>
    __device__ __forceinline__ bool knows(const Few<Key, K>& best, Key out, int k) const {
        const unsigned zero = 0x80000000u - turned(), below = (zero - 1) & ~mask;  // +0, and -0, which are equal
        bool known = best.at[0] <= ((0x80000000u + infinity() - turned()) | mask);
#pragma unroll
        for (int i = 0; i < K; ++i) {
            const unsigned mine = best.at[i] & ~mask, next = (i + 1 < K ? best.at[(i + 1) % K] : out) & ~mask;
            if (i < k) known &= mine != (zero & ~mask) && mine != below && (SHORT || mine != next);
        }
        return known;
    }
};

// Of a row of `cols`: in packs of V that LANES take in turns, AHEAD steps on their way at once. `out`: the best of what is left.
template <int LANES, int K, int V, class Order>
__device__ __forceinline__ Few<typename Order::Key, K> few_largest(const scalar_t* row, int cols, int lane, const Order& order,
                                                                  typename Order::Key& out) {
    using Key = typename Order::Key;
    constexpr int STEP = V > K ? V : K, PACKS = STEP / V, AHEAD = FEW_AHEAD * VEC / STEP > 0 ? FEW_AHEAD * VEC / STEP : 1;
    Few<Key, K> best = {};
    out = 0;
    for (int start = 0; start < cols; start += AHEAD * STEP * LANES) {
        Some<V> packs[AHEAD * PACKS];
#pragma unroll
        for (int p = 0; p < AHEAD * PACKS; ++p) {
            const int at = start + (p * LANES + lane) * V;
#pragma unroll
            for (int j = 0; j < V; ++j) packs[p].at[j] = scalar_t(__int_as_float(0xff800000));
            if (at < cols) packs[p] = *reinterpret_cast<const Some<V>*>(row + at);
        }
#pragma unroll
        for (int s = 0; s < AHEAD; ++s) {
            if (s > 0 && start + s * STEP * LANES >= cols) break;
            Key keys[STEP];
#pragma unroll
            for (int p = 0; p < PACKS; ++p)
                order.keys(packs[s * PACKS + p], start + ((s * PACKS + p) * LANES + lane) * V, 1, keys + p * V);
#pragma unroll
            for (int g = 0; g < STEP / K; ++g) {
                Few<Key, K> more;
#pragma unroll
                for (int i = 0; i < K; ++i) more.at[i] = keys[g * K + i];
                more.sort();
                out = max(out, best.take(more));
            }
        }
    }
#pragma unroll
    for (int d = 1; d < LANES; d *= 2) {
        Few<Key, K> more;
#pragma unroll
        for (int i = 0; i < K; ++i) more.at[i] = warp_shuffle_xor(best.at[i], d);
        const Key other = warp_shuffle_xor(out, d);
        out = max(max(out, other), best.take(more));
    }
    return best;
}

// What lane `lane` of LANES has of K: those at lane, lane + LANES and so on, which it gives `put` with their places.
template <int LANES, int K, class T, class Put>
__device__ __forceinline__ void each_own(const T* all, int lane, Put put) {
    constexpr int SIDE = LANES < K ? LANES : K;
#pragma unroll
    for (int i = 0; i < K; i += SIDE) {
        T own = all[i];
#pragma unroll
        for (int j = 1; j < SIDE; ++j)
            if (lane == j) own = all[i + j];
        if (lane < SIDE) put(i + lane, own);
    }
}
