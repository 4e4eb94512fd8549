// The product that a group of lanes makes together, and where each lane holds its elements.
// mma.sync, nvcuda::wmma, AMD's mfma and wmma and rocwmma are all built on this file.
//
// Arithmetic: products of narrow types are exact in float32, and each element adds them to its
// accumulator one after the other with k ascending, rounded to nearest even. Hardware adds several
// products at once, aligned to the largest and cut off below (a few bits past float32), in an
// order that no vendor documents: expect the last bits of float32 to differ. Integers are exact.
#pragma once
#include "core.h"
#include "narrow.h"

namespace simt {

// 4-bit integers, 8 to a register; low bits first.
struct s4 {};
struct u4 {};

namespace matrix {

// How an array of registers holds elements of type T, and what they are computed in. Registers of
// other lanes are read here: no matter for a checker of memory.
template <class T, class C = T>
struct Element {
    using Compute = C;
    static constexpr int bits = 8 * sizeof(T);
    SIMT_NO_CHECK static C get(const void* from, int i) {
        T value;
        memcpy((void*)&value, (const char*)from + i * sizeof(T), sizeof(T));
        return (C)value;
    }
    SIMT_NO_CHECK static void set(void* to, int i, C value) {
        const T rounded = (T)value;
        memcpy((char*)to + i * sizeof(T), (const void*)&rounded, sizeof(T));
    }
};
template <bool SIGNED>
struct Nibble {
    using Compute = int32_t;
    static constexpr int bits = 4;
    SIMT_NO_CHECK static Compute get(const void* from, int i) {
        const int value = ((const uint8_t*)from)[i / 2] >> i % 2 * 4 & 15;
        return SIGNED ? (value ^ 8) - 8 : value;
    }
};

// Headers of other narrow types add theirs.
template <class T>
struct Traits : Element<T> {};
template <class F>
struct Traits<narrow::Number<F>> : Element<narrow::Number<F>, float> {};
template <>
struct Traits<tf32> : Element<tf32, float> {};
template <>
struct Traits<int8_t> : Element<int8_t, int32_t> {};
template <>
struct Traits<uint8_t> : Element<uint8_t, int32_t> {};
template <>
struct Traits<s4> : Nibble<true> {};
template <>
struct Traits<u4> : Nibble<false> {};

// ---- the product -------------------------------------------------------------------------

static inline float multiply_add(float a, float b, float c) { return c + a * b; }
static inline double multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline int64_t multiply_add(int32_t a, int32_t b, int64_t c) { return c + (int64_t)a * b; }
// float32 inputs: the product is exact in float64, so that one rounding is left, as in an FMA.
struct Fused {
    float value;
};
static inline float multiply_add(Fused a, Fused b, float c) {
    return (float)((double)c + (double)a.value * b.value);
}
template <>
struct Traits<Fused> {
    using Compute = Fused;
    static constexpr int bits = 32;
    SIMT_NO_CHECK static Fused get(const void* from, int i) {
        return {Element<float>::get(from, i)};
    }
};
template <class T>
struct Accumulated {
    using Type = T;
};
template <>
struct Accumulated<int32_t> {  // wide enough to see whether the result fits into 32 bits
    using Type = int64_t;
};
template <>
struct Accumulated<Fused> {
    using Type = float;
};

// Matrices of one group of lanes: D = A B + C, BLOCKS times. B is kept transposed.
template <class T, int M, int N, int K, int BLOCKS = 1>
struct Numbers {
    using Accumulator = typename Accumulated<T>::Type;
    T a[BLOCKS][K][M];
    T b[BLOCKS][K][N];
    Accumulator c[BLOCKS][M][N];

    SIMT_NO_CHECK void multiply() {
        for (int block = 0; block < BLOCKS; ++block)
            for (int k = 0; k < K; ++k)
                for (int i = 0; i < M; ++i) {
                    const T left = a[block][k][i];
                    for (int j = 0; j < N; ++j)
                        c[block][i][j] = multiply_add(left, b[block][k][j], c[block][i][j]);
                }
    }
};

// int32 accumulators: what does not fit wraps, or with `saturate` becomes the nearest number.
template <class C>
static inline C finish(C sum, bool) { return sum; }
static inline int32_t finish(int64_t sum, bool saturate) {
    if (saturate) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
    return (int32_t)(uint32_t)sum;
}

// The lanes of the caller's group of `lanes`: a warp, or a half of one where warps are wider.
static inline Mask group(int lanes) {
    if (lanes == 64) return ~Mask{0};
    return 0xffffffffull << (lane_id() & ~31);
}

// Runs once for all. `Own` is a lane's registers: give() puts them into the matrices, take() gets
// the results; they are told the lane's number within the group. Absent lanes give zeros.
template <class Own>
SIMT_NO_CHECK inline void multiply_lanes(Own* const* own, Mask present) {
    typename Own::Numbers numbers{};
    const int least = __builtin_ctzll(present), first = least & ~(Own::lanes - 1);
    for (Mask m = present; m; m &= m - 1)
        own[__builtin_ctzll(m)]->give(numbers, __builtin_ctzll(m) - first);
    numbers.multiply();
    for (Mask m = present; m; m &= m - 1)
        own[__builtin_ctzll(m)]->take(numbers, __builtin_ctzll(m) - first);
    const int here = __builtin_popcountll(present);
    if (SIMT_UNLIKELY(here != Own::lanes))
        finding(306, own[least]->at, "a matrix product of %d lanes in which only %d take part",
                Own::lanes, here);
}
template <class Own>
static inline void multiply(Own& own) {
    together(group(Own::lanes), own, multiply_lanes<Own>, own.at);
}

// ---- NVIDIA's layouts --------------------------------------------------------------------

struct Place {
    int outer, inner;  // of A: row and k; of B: column and k; of C: row and column
};

// Element i of a lane, PER of them to a 32-bit register. Lane l holds row l / 4 and columns
// PER * (l % 4) …; registers go on 8 rows below, then to the next columns, then 16 rows below.
// (PTX ISA, "Matrix Fragments for mma"; taller ones as read off a GPU of compute capability 9.0.)
template <int OUTER, int INNER, int PER>
static inline Place tall(int lane, int i) {
    constexpr int runs = INNER / (4 * PER), halves = OUTER >= 16 ? 2 : 1;
    constexpr int pieces = OUTER >= 16 ? OUTER / 16 : 1;
    const int r = i / PER, lower = r % halves, run = r / halves % runs;
    const int piece = r / halves / runs % pieces;
    return {lane / 4 + 8 * lower + 16 * piece, PER * (4 * run + lane % 4) + i % PER};
}
// The other operand: registers go on along k first, then 8 columns to the right.
template <int OUTER, int INNER, int PER>
static inline Place flat(int lane, int i) {
    constexpr int runs = INNER / (4 * PER), pieces = OUTER / 8;
    const int r = i / PER, run = r % runs, piece = r / runs % pieces;
    return {lane / 4 + 8 * piece, PER * (4 * run + lane % 4) + i % PER};
}

// How many elements share a 32-bit register; float64 takes two registers for one.
template <class T>
constexpr int per_register = Traits<T>::bits >= 32 ? 1 : 32 / Traits<T>::bits;

// A lane's sums, from and to its registers of type T.
template <class T, class S, size_t M, size_t N>
SIMT_NO_CHECK static inline void give_sums(S (&sums)[M][N], const void* from, int lane) {
    for (int i = 0; i < (int)(M * N) / 32; ++i) {
        const auto p = tall<M, N, 2>(lane, i);
        sums[p.outer][p.inner] = Traits<T>::get(from, i);
    }
}
template <class T, class S, size_t M, size_t N>
SIMT_NO_CHECK static inline void take_sums(const S (&sums)[M][N], void* to, int lane, bool saturate) {
    for (int i = 0; i < (int)(M * N) / 32; ++i) {
        const auto p = tall<M, N, 2>(lane, i);
        Traits<T>::set(to, i, finish(sums[p.outer][p.inner], saturate));
    }
}

}  // namespace matrix
}  // namespace simt
