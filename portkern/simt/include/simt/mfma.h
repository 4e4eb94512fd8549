// AMD's matrix instructions as the builtins that clang has for them: mfma of CDNA's 64-lane waves,
// wmma of RDNA3 and RDNA4.
//
// Layouts are those that AMD's Matrix Instruction Calculator gives. Operands are whatever vector
// type the caller has; only their sizes are looked at. EXEC does not count: all lanes take part.
#pragma once
#include "amdgcn.h"
#include "matrix.h"

namespace simt {
namespace amd {

static inline void needs_wave(int lanes, Site at) {
    if (SIMT_UNLIKELY(warpSize != lanes))
        fatal(410, at, "a matrix instruction of %d-lane waves on %s, whose waves have %d", lanes,
              facts.arch, warpSize);
}

// ---- mfma --------------------------------------------------------------------------------

// The lane whose registers stand in for those of `lane` of B.
SIMT_NO_CHECK static inline int permuted(int lane, int blgp) {
    switch (blgp) {
        case 0: return lane;
        case 1: return lane % 32;
        case 2: return lane % 32 + 32;
        case 3: return (lane + 16) % 64;
        default: return lane % 16 + 16 * (blgp - 4);
    }
}

// BLOCKS products of M x K by K x N. A, B: how elements are read; C is that of the results.
template <int M, int N, int K, int BLOCKS, class A, class B, class C>
struct Mfma {
    static constexpr int lanes = 64;
    static constexpr int inputs = M * K * BLOCKS / 64, outputs = M * N * BLOCKS / 64;
    using Numbers = matrix::Numbers<typename matrix::Traits<A>::Compute, M, N, K, BLOCKS>;
    const void *a, *b, *c;
    void* d;
    int cbsz, abid, blgp;
    Site at;

    // Lane l holds `inputs` neighbouring k of row (column) l % M of block l / M; lanes that are
    // left over hold the next k.
    SIMT_NO_CHECK static int block_of(int lane) { return lane / M % BLOCKS; }
    SIMT_NO_CHECK static int depth_of(int lane, int e) { return lane / (M * BLOCKS) * inputs + e; }

    struct Result {
        int block, row, column;
    };
    // Rows go to registers by fours (float64: one by one), then to the next lanes.
    SIMT_NO_CHECK static Result result(int lane, int r) {
        constexpr int height = sizeof(C) == 8 ? 1 : 4;
        constexpr int side = M * N / height >= 64 ? 1 : 64 * height / (M * N);  // blocks abreast
        constexpr int registers = M * N * side / 64, strips = 64 / N / side;
        const int x = lane / N, inner = r % registers;
        const int row = inner / height * height * strips + x / side * height + inner % height;
        return {r / registers * side + x % side, row, lane % N};
    }

    // float64 has no blgp: its three bits negate A, B and C.
    SIMT_NO_CHECK bool negated(int operand) const { return sizeof(C) == 8 && blgp >> operand & 1; }
    template <class T>
    SIMT_NO_CHECK static T signed_as(bool negative, T value) {
        if constexpr (std::is_same<T, double>::value) return negative ? -value : value;
        else return value;
    }

    SIMT_NO_CHECK void give(Numbers& n, int lane) const {
        const int pattern = sizeof(C) == 8 ? 0 : blgp;
        for (int e = 0; e < inputs; ++e) {
            const auto left = signed_as(negated(0), matrix::Traits<A>::get(a, e));
            const auto right = signed_as(negated(1), matrix::Traits<B>::get(b, e));
            for (int block = 0; block < BLOCKS; ++block)  // cbsz: one block's A serves several
                if ((block >> cbsz << cbsz) + (cbsz ? abid : block & 0) == block_of(lane))
                    n.a[block][depth_of(lane, e)][lane % M] = left;
            for (int to = pattern ? 0 : lane; to < (pattern ? 64 : lane + 1); ++to)
                if (permuted(to, pattern) == lane)
                    n.b[block_of(to)][depth_of(to, e)][to % N] = right;
        }
        for (int r = 0; r < outputs; ++r) {
            const Result p = result(lane, r);
            const auto start = matrix::Traits<C>::get(c, r);
            n.c[p.block][p.row][p.column] = signed_as(negated(2), start);
        }
    }
    SIMT_NO_CHECK void take(const Numbers& n, int lane) const {
        for (int r = 0; r < outputs; ++r) {
            const Result p = result(lane, r);
            matrix::Traits<C>::set(d, r, matrix::finish(n.c[p.block][p.row][p.column], false));
        }
    }
};

template <int M, int N, int K, int BLOCKS, class A, class B, class C, class X, class Z>
static inline Z mfma(const X& a, const X& b, const Z& c, int cbsz, int abid, int blgp, Site at) {
    using Own = Mfma<M, N, K, BLOCKS, A, B, C>;
    static_assert(sizeof(X) * 8 == Own::inputs * matrix::Traits<A>::bits,
                  "mfma: A and B are of another size");
    static_assert(sizeof(Z) == Own::outputs * sizeof(C), "mfma: C is of another size");
    needs_wave(64, at);
    Z d;
    Own own = {&a, &b, &c, &d, cbsz, abid, blgp, at};
    matrix::multiply(own);
    return d;
}

// The same names mean AMD's own 8-bit formats on gfx942 and OCP's from gfx950 on.
template <int M, int N, int K, class A, class B, class AF, class BF, class X, class Z>
static inline Z mfma_fp8(const X& a, const X& b, const Z& c, int cbsz, int abid, int blgp,
                         Site at) {
    if (facts.fp8 == Fp8::fnuz)
        return mfma<M, N, K, 1, AF, BF, float>(a, b, c, cbsz, abid, blgp, at);
    return mfma<M, N, K, 1, A, B, float>(a, b, c, cbsz, abid, blgp, at);
}

// ---- wmma --------------------------------------------------------------------------------

// RDNA3: each lane holds a whole row of A (column of B); lanes 16 and up repeat lanes 0 to 15.
template <int LANES, class A, int K>
struct Rdna3 {
    static constexpr int lanes = LANES, inputs = K, outputs = 256 / LANES;
    SIMT_NO_CHECK static bool gives(int lane) { return lane < 16; }
    SIMT_NO_CHECK static int depth(int, int e) { return e; }
    SIMT_NO_CHECK static int row(int lane, int r) { return LANES / 16 * r + lane / 16; }
    // 16-bit results lie in the half of each 32-bit register that op_sel names.
    static constexpr int spread = 2;
};

// RDNA4: nothing is repeated. Neighbouring k share a lane by 4 (16-bit) or as many as it holds.
template <int LANES, class A, int K>
struct Rdna4 {
    static constexpr int lanes = LANES, inputs = 16 * K / LANES, outputs = 256 / LANES;
    SIMT_NO_CHECK static bool gives(int) { return true; }
    SIMT_NO_CHECK static int depth(int lane, int e) {
        const int upper = lane / 16 % 2, far = lane / 32;
        if (matrix::Traits<A>::bits == 16)
            return LANES == 64 ? 8 * far + 4 * upper + e : e / 4 * 8 + 4 * upper + e % 4;
        return LANES == 64 ? inputs * (2 * upper + far) + e : inputs * upper + e;
    }
    SIMT_NO_CHECK static int row(int lane, int r) {
        return LANES == 64 ? 8 * (lane / 16 % 2) + 4 * (lane / 32) + r : 8 * (lane / 16) + r;
    }
    static constexpr int spread = 1;
};

// One 16 x 16 x K product. Element r of C is at `stride * r + first` of the caller's vector.
template <class Layout, int K, class A, class B, class C>
struct Wmma {
    static constexpr int lanes = Layout::lanes;
    using Numbers = matrix::Numbers<typename matrix::Traits<A>::Compute, 16, 16, K>;
    const void *a, *b, *c;
    void* d;
    int first;
    bool saturate;
    Site at;
    static constexpr int stride = sizeof(C) == 2 ? Layout::spread : 1;

    SIMT_NO_CHECK void give(Numbers& n, int lane) const {
        for (int e = 0; e < Layout::inputs && Layout::gives(lane); ++e) {
            const int k = Layout::depth(lane, e);
            n.a[0][k][lane % 16] = matrix::Traits<A>::get(a, e);
            n.b[0][k][lane % 16] = matrix::Traits<B>::get(b, e);
        }
        for (int r = 0; r < Layout::outputs; ++r)
            n.c[0][Layout::row(lane, r)][lane % 16] = matrix::Traits<C>::get(c, stride * r + first);
    }
    SIMT_NO_CHECK void take(const Numbers& n, int lane) const {
        for (int r = 0; r < Layout::outputs; ++r) {
            const auto sum = n.c[0][Layout::row(lane, r)][lane % 16];
            matrix::Traits<C>::set(d, stride * r + first, matrix::finish(sum, saturate));
        }
    }
};

template <template <int, class, int> class Family, int LANES, int K, class A, class B, class C,
          class X, class Z>
static inline Z wmma(const X& a, const X& b, const Z& c, bool upper, bool saturate, Site at) {
    using Layout = Family<LANES, A, K>;
    using Own = Wmma<Layout, K, A, B, C>;
    static_assert(sizeof(X) * 8 == Layout::inputs * matrix::Traits<A>::bits,
                  "wmma: A and B are of another size");
    static_assert(sizeof(Z) == Own::stride * Layout::outputs * sizeof(C),
                  "wmma: C is of another size");
    needs_wave(LANES, at);
    Z d = c;  // the other halves of registers keep what C had
    Own own = {&a, &b, &c, &d, Own::stride == 2 && upper, saturate, at};
    matrix::multiply(own);
    return d;
}

// Integers come with a flag each: signed or not.
template <template <int, class, int> class Family, int LANES, int K, class S, class U, class X,
          class Z>
static inline Z wmma_integer(bool a_signed, const X& a, bool b_signed, const X& b, const Z& c,
                             bool clamp, Site at) {
    if (a_signed && b_signed)
        return wmma<Family, LANES, K, S, S, int32_t>(a, b, c, false, clamp, at);
    if (a_signed) return wmma<Family, LANES, K, S, U, int32_t>(a, b, c, false, clamp, at);
    if (b_signed) return wmma<Family, LANES, K, U, S, int32_t>(a, b, c, false, clamp, at);
    return wmma<Family, LANES, K, U, U, int32_t>(a, b, c, false, clamp, at);
}

}  // namespace amd
}  // namespace simt

// ---- the builtins of mfma ----------------------------------------------------------------

#define SIMT_MFMA(NAME, M, N, K, BLOCKS, A, B, C)                                            \
    template <class X, class Z>                                                              \
    static inline Z __builtin_amdgcn_mfma_##NAME(X a, X b, Z c, int cbsz, int abid, int blgp, \
                                                 SIMT_AT) {                                  \
        return simt::amd::mfma<M, N, K, BLOCKS, A, B, C>(a, b, c, cbsz, abid, blgp, at);     \
    }
SIMT_MFMA(f32_32x32x1f32, 32, 32, 1, 2, simt::matrix::Fused, simt::matrix::Fused, float)
SIMT_MFMA(f32_16x16x1f32, 16, 16, 1, 4, simt::matrix::Fused, simt::matrix::Fused, float)
SIMT_MFMA(f32_4x4x1f32, 4, 4, 1, 16, simt::matrix::Fused, simt::matrix::Fused, float)
SIMT_MFMA(f32_32x32x2f32, 32, 32, 2, 1, simt::matrix::Fused, simt::matrix::Fused, float)
SIMT_MFMA(f32_16x16x4f32, 16, 16, 4, 1, simt::matrix::Fused, simt::matrix::Fused, float)
SIMT_MFMA(f32_32x32x4f16, 32, 32, 4, 2, simt::f16, simt::f16, float)
SIMT_MFMA(f32_16x16x4f16, 16, 16, 4, 4, simt::f16, simt::f16, float)
SIMT_MFMA(f32_4x4x4f16, 4, 4, 4, 16, simt::f16, simt::f16, float)
SIMT_MFMA(f32_32x32x8f16, 32, 32, 8, 1, simt::f16, simt::f16, float)
SIMT_MFMA(f32_16x16x16f16, 16, 16, 16, 1, simt::f16, simt::f16, float)
SIMT_MFMA(f32_32x32x2bf16, 32, 32, 2, 2, simt::bf16, simt::bf16, float)
SIMT_MFMA(f32_16x16x2bf16, 16, 16, 2, 4, simt::bf16, simt::bf16, float)
SIMT_MFMA(f32_4x4x2bf16, 4, 4, 2, 16, simt::bf16, simt::bf16, float)
SIMT_MFMA(f32_32x32x4bf16, 32, 32, 4, 1, simt::bf16, simt::bf16, float)
SIMT_MFMA(f32_16x16x8bf16, 16, 16, 8, 1, simt::bf16, simt::bf16, float)
SIMT_MFMA(f32_32x32x4bf16_1k, 32, 32, 4, 2, simt::bf16, simt::bf16, float)
SIMT_MFMA(f32_16x16x4bf16_1k, 16, 16, 4, 4, simt::bf16, simt::bf16, float)
SIMT_MFMA(f32_4x4x4bf16_1k, 4, 4, 4, 16, simt::bf16, simt::bf16, float)
SIMT_MFMA(f32_32x32x8bf16_1k, 32, 32, 8, 1, simt::bf16, simt::bf16, float)
SIMT_MFMA(f32_16x16x16bf16_1k, 16, 16, 16, 1, simt::bf16, simt::bf16, float)
SIMT_MFMA(i32_32x32x4i8, 32, 32, 4, 2, int8_t, int8_t, int32_t)
SIMT_MFMA(i32_16x16x4i8, 16, 16, 4, 4, int8_t, int8_t, int32_t)
SIMT_MFMA(i32_4x4x4i8, 4, 4, 4, 16, int8_t, int8_t, int32_t)
SIMT_MFMA(i32_32x32x8i8, 32, 32, 8, 1, int8_t, int8_t, int32_t)
SIMT_MFMA(i32_16x16x16i8, 16, 16, 16, 1, int8_t, int8_t, int32_t)
SIMT_MFMA(i32_32x32x16_i8, 32, 32, 16, 1, int8_t, int8_t, int32_t)
SIMT_MFMA(i32_16x16x32_i8, 16, 16, 32, 1, int8_t, int8_t, int32_t)
SIMT_MFMA(f64_16x16x4f64, 16, 16, 4, 1, double, double, double)
SIMT_MFMA(f64_4x4x4f64, 4, 4, 4, 4, double, double, double)
// xf32: the low 13 bits of the mantissa do not count
SIMT_MFMA(f32_16x16x8_xf32, 16, 16, 8, 1, simt::tf32, simt::tf32, float)
SIMT_MFMA(f32_32x32x4_xf32, 32, 32, 4, 1, simt::tf32, simt::tf32, float)
// gfx950
SIMT_MFMA(f32_16x16x32_f16, 16, 16, 32, 1, simt::f16, simt::f16, float)
SIMT_MFMA(f32_32x32x16_f16, 32, 32, 16, 1, simt::f16, simt::f16, float)
SIMT_MFMA(f32_16x16x32_bf16, 16, 16, 32, 1, simt::bf16, simt::bf16, float)
SIMT_MFMA(f32_32x32x16_bf16, 32, 32, 16, 1, simt::bf16, simt::bf16, float)
SIMT_MFMA(i32_16x16x64_i8, 16, 16, 64, 1, int8_t, int8_t, int32_t)
SIMT_MFMA(i32_32x32x32_i8, 32, 32, 32, 1, int8_t, int8_t, int32_t)
#undef SIMT_MFMA


#define SIMT_MFMA(SHAPE, PAIR, M, N, K, A, B)                                                  \
    template <class X, class Z>                                                                \
    static inline Z __builtin_amdgcn_mfma_##SHAPE##_##PAIR(X a, X b, Z c, int cbsz, int abid,  \
                                                           int blgp, SIMT_AT) {                \
        return simt::amd::mfma_fp8<M, N, K, simt::A, simt::B, simt::A##fnuz, simt::B##fnuz>(   \
            a, b, c, cbsz, abid, blgp, at);                                                    \
    }
SIMT_MFMA(f32_16x16x32, fp8_fp8, 16, 16, 32, e4m3, e4m3)
SIMT_MFMA(f32_16x16x32, fp8_bf8, 16, 16, 32, e4m3, e5m2)
SIMT_MFMA(f32_16x16x32, bf8_fp8, 16, 16, 32, e5m2, e4m3)
SIMT_MFMA(f32_16x16x32, bf8_bf8, 16, 16, 32, e5m2, e5m2)
SIMT_MFMA(f32_32x32x16, fp8_fp8, 32, 32, 16, e4m3, e4m3)
SIMT_MFMA(f32_32x32x16, fp8_bf8, 32, 32, 16, e4m3, e5m2)
SIMT_MFMA(f32_32x32x16, bf8_fp8, 32, 32, 16, e5m2, e4m3)
SIMT_MFMA(f32_32x32x16, bf8_bf8, 32, 32, 16, e5m2, e5m2)
#undef SIMT_MFMA

// ---- the builtins of wmma ----------------------------------------------------------------

#define SIMT_WMMA(NAME, FAMILY, LANES, A, B)                                               \
    template <class X, class Z>                                                            \
    static inline Z __builtin_amdgcn_wmma_##NAME(X a, X b, Z c, SIMT_AT) {                 \
        return simt::amd::wmma<simt::amd::FAMILY, LANES, 16, simt::A, simt::B, float>(     \
            a, b, c, false, false, at);                                                    \
    }
SIMT_WMMA(f32_16x16x16_f16_w32, Rdna3, 32, f16, f16)
SIMT_WMMA(f32_16x16x16_f16_w64, Rdna3, 64, f16, f16)
SIMT_WMMA(f32_16x16x16_bf16_w32, Rdna3, 32, bf16, bf16)
SIMT_WMMA(f32_16x16x16_bf16_w64, Rdna3, 64, bf16, bf16)
SIMT_WMMA(f32_16x16x16_f16_w32_gfx12, Rdna4, 32, f16, f16)
SIMT_WMMA(f32_16x16x16_f16_w64_gfx12, Rdna4, 64, f16, f16)
SIMT_WMMA(f32_16x16x16_bf16_w32_gfx12, Rdna4, 32, bf16, bf16)
SIMT_WMMA(f32_16x16x16_bf16_w64_gfx12, Rdna4, 64, bf16, bf16)
#define SIMT_WMMA_FP8(LANES)                                                          \
    SIMT_WMMA(f32_16x16x16_fp8_fp8_w##LANES##_gfx12, Rdna4, LANES, e4m3, e4m3)        \
    SIMT_WMMA(f32_16x16x16_fp8_bf8_w##LANES##_gfx12, Rdna4, LANES, e4m3, e5m2)        \
    SIMT_WMMA(f32_16x16x16_bf8_fp8_w##LANES##_gfx12, Rdna4, LANES, e5m2, e4m3)        \
    SIMT_WMMA(f32_16x16x16_bf8_bf8_w##LANES##_gfx12, Rdna4, LANES, e5m2, e5m2)
SIMT_WMMA_FP8(32)
SIMT_WMMA_FP8(64)
#undef SIMT_WMMA_FP8
#undef SIMT_WMMA

// 16-bit results; RDNA3 puts them into the upper or lower halves of registers. In the tied forms C
// and D are the same registers, which is what the others do here too.
#define SIMT_WMMA(NAME, LANES, T)                                                            \
    template <class X, class Z>                                                              \
    static inline Z __builtin_amdgcn_wmma_##NAME##_w##LANES(X a, X b, Z c, bool upper, SIMT_AT) { \
        return simt::amd::wmma<simt::amd::Rdna3, LANES, 16, simt::T, simt::T, simt::T>(      \
            a, b, c, upper, false, at);                                                      \
    }
SIMT_WMMA(f16_16x16x16_f16, 32, f16)
SIMT_WMMA(f16_16x16x16_f16, 64, f16)
SIMT_WMMA(bf16_16x16x16_bf16, 32, bf16)
SIMT_WMMA(bf16_16x16x16_bf16, 64, bf16)
SIMT_WMMA(f16_16x16x16_f16_tied, 32, f16)
SIMT_WMMA(f16_16x16x16_f16_tied, 64, f16)
SIMT_WMMA(bf16_16x16x16_bf16_tied, 32, bf16)
SIMT_WMMA(bf16_16x16x16_bf16_tied, 64, bf16)
#undef SIMT_WMMA
#define SIMT_WMMA(NAME, LANES, T)                                                            \
    template <class X, class Z>                                                              \
    static inline Z __builtin_amdgcn_wmma_##NAME##_w##LANES##_gfx12(X a, X b, Z c, SIMT_AT) { \
        return simt::amd::wmma<simt::amd::Rdna4, LANES, 16, simt::T, simt::T, simt::T>(      \
            a, b, c, false, false, at);                                                      \
    }
SIMT_WMMA(f16_16x16x16_f16, 32, f16)
SIMT_WMMA(f16_16x16x16_f16, 64, f16)
SIMT_WMMA(bf16_16x16x16_bf16, 32, bf16)
SIMT_WMMA(bf16_16x16x16_bf16, 64, bf16)
#undef SIMT_WMMA

#define SIMT_WMMA(NAME, FAMILY, LANES, K, S, U)                                              \
    template <class X, class Z>                                                              \
    static inline Z __builtin_amdgcn_wmma_i32_16x16x##K##_##NAME(                            \
        bool a_signed, X a, bool b_signed, X b, Z c, bool clamp, SIMT_AT) {                  \
        return simt::amd::wmma_integer<simt::amd::FAMILY, LANES, K, S, U>(                   \
            a_signed, a, b_signed, b, c, clamp, at);                                         \
    }
SIMT_WMMA(iu8_w32, Rdna3, 32, 16, int8_t, uint8_t)
SIMT_WMMA(iu8_w64, Rdna3, 64, 16, int8_t, uint8_t)
SIMT_WMMA(iu4_w32, Rdna3, 32, 16, simt::s4, simt::u4)
SIMT_WMMA(iu4_w64, Rdna3, 64, 16, simt::s4, simt::u4)
SIMT_WMMA(iu8_w32_gfx12, Rdna4, 32, 16, int8_t, uint8_t)
SIMT_WMMA(iu8_w64_gfx12, Rdna4, 64, 16, int8_t, uint8_t)
SIMT_WMMA(iu4_w32_gfx12, Rdna4, 32, 16, simt::s4, simt::u4)
SIMT_WMMA(iu4_w32_gfx12, Rdna4, 32, 32, simt::s4, simt::u4)
SIMT_WMMA(iu4_w64_gfx12, Rdna4, 64, 32, simt::s4, simt::u4)
#undef SIMT_WMMA
