// Matrix instructions: MFMA (CDNA) and WMMA (RDNA).
#include "lanes.h"
#include "numbers.h"
#include "products.h"

namespace isa {
namespace {

enum class Type { f32, f16, bf16, i8, f64, fp8, bf8, xf32 };

template <Type T> double element(const Wave& w, u32 reg, int l, int e) {
    if constexpr (T == Type::f64)
        return as<double>((u64)w.v[reg + 2 * e + 1][l] << 32 | w.v[reg + 2 * e][l]);
    else if constexpr (T == Type::f32) return f32(w.v[reg + e][l]);
    else if constexpr (T == Type::xf32) return f32(w.v[reg + e][l] & 0xffffe000);
    else if constexpr (T == Type::f16) return (double)half(w.v[reg + e / 2][l] >> 16 * (e & 1));
    else if constexpr (T == Type::bf16) return f32(w.v[reg + e / 2][l] >> 16 * (e & 1) << 16);
    else if constexpr (T == Type::fp8 || T == Type::bf8) {
        const bool fnuz = w.machine->fnuz;
        const int bias = (T == Type::fp8 ? 7 : 15) + fnuz;
        const u32 x = w.v[reg + e / 4][l] >> 8 * (e & 3) & 255;
        return small_float(x, T == Type::fp8 ? 3 : 2, bias, fnuz);
    } else return (i8)(w.v[reg + e / 4][l] >> 8 * (e & 3));
}

// The exponent of a type's least normal number.
template <Type T> int least_exponent(bool fnuz) {
    return T == Type::f16 ? -14 : T == Type::fp8 ? -6 - fnuz : T == Type::bf8 ? -14 - fnuz : -126;
}
template <Type T> float least_normal() { return T == Type::f16 ? 0x1p-14f : 0x1p-126f; }
template <int K, int M> bool any_below(const float (&factors)[K][M], float least) {
    u32 found = 0;
    for (int k = 0; k < K; ++k)
        for (int m = 0; m < M; ++m)
            found |= factors[k][m] != 0 && std::fabs(factors[k][m]) < least;
    return found;
}

// One matrix per block; lane l holds column l % N (of B, C, D) and row l % M (of A), and groups of
// lanes share the depth.
template <int M, int N, int K, int B, Type TA, Type TB = TA, int AT_ONCE = 4>
void mfma(Wave& w, const Instruction& i) {
    constexpr int held = M * K * B / 64, results = M * N * B / 64;
    constexpr bool wide = TA == Type::f64, whole = TA == Type::i8;
    using Element = std::conditional_t<whole, i32, std::conditional_t<wide, double, float>>;
    using Sum = Element;
    if (i.cbsz || i.abid || (i.blgp && !wide)) return unmodelled(w, i);
    alignas(64) static thread_local Element a[B][K][M], b[B][K][N];
    alignas(64) static thread_local Sum c[B][M][N];
    const double sign_a = wide && i.blgp & 1 ? -1 : 1, sign_b = wide && i.blgp & 2 ? -1 : 1;
    for (int l = 0; l < LANES; ++l)
        for (int e = 0; e < held; ++e) {
            const int block = B == 1 ? 0 : l / M % B;
            const int k = B == 1 ? l / M * held + e : l / (M * B) * held + e;
            a[block][k][l % M] = (Element)(sign_a * element<TA>(w, i.o[1].reg, l, e));
            b[block][k][l % N] = (Element)(sign_b * element<TB>(w, i.o[2].reg, l, e));
        }
    const auto at = [](int l, int r) -> Sum& {
        if constexpr (M == 32) {
            const int q = r % 16;
            return c[r / 16][q % 4 + 8 * (q / 4) + 4 * (l / 32)][l % N];
        } else if constexpr (wide && M == 16) {
            return c[0][l / 16 + 4 * r][l % N];
        } else if constexpr (wide) {
            return c[l / 4 % 4][l / 16][l % N];
        } else if constexpr (M == 16) {
            return c[r / 4][4 * (l / 16) + r % 4][l % N];
        } else {
            return c[l / 4][r][l % N];
        }
    };
    const Operand& from = i.o[3];
    for (int l = 0; l < LANES; ++l)
        for (int r = 0; r < results; ++r) {
            const bool given = from.kind == Kind::vector;
            if constexpr (wide)
                at(l, r) = given ? element<Type::f64>(w, from.reg, l, r)
                                 : as<double>(s64(w, i, from, true));
            else at(l, r) = as<Sum>(given ? w.v[from.reg + r][l] : s32(w, from));
        }
    for (int block = 0; block < B; ++block) {
        if constexpr (whole) {
            for (int k = 0; k < K; ++k)
                for (int m = 0; m < M; ++m)
                    for (int n = 0; n < N; ++n)
                        c[block][m][n] = (i32)((u32)c[block][m][n] +
                                               (u32)(a[block][k][m] * b[block][k][n]));
        } else if constexpr (wide || TA == Type::f32) {
            for (int k = 0; k < K; ++k)
                for (int m = 0; m < M; ++m)
                    for (int n = 0; n < N; ++n)
                        c[block][m][n] = std::fma(a[block][k][m], b[block][k][n], c[block][m][n]);
        } else if (w.machine->program->gfx90a) {
            Machine& machine = *w.machine;
            if (!machine.flushes && (any_below(a[block], least_normal<TA>()) ||
                                     any_below(b[block], least_normal<TA>()))) {
                machine.flushes = true;
                machine.report(Finding::flushed_factor, w, i.pc, 0, 0, i.name);
            }
            flushed_products<M, N, K, AT_ONCE>(a[block], b[block], c[block], least_normal<TA>());
        } else {
            constexpr bool tiny = TA == Type::fp8 || TA == Type::bf8;
            constexpr int together = tiny ? 16 : TA == Type::xf32 ? 4 : 8;
            const bool fnuz = w.machine->fnuz;
            truncated_products<M, N, K, std::min(K, together), tiny ? 2 : 1>(
                a[block], b[block], c[block], least_exponent<TA>(fnuz), least_exponent<TB>(fnuz));
        }
    }
    for (int l = 0; l < LANES; ++l)
        for (int r = 0; r < results; ++r) {
            if constexpr (wide) {
                const u64 x = as<u64>(at(l, r));
                w.v[i.o[0].reg + 2 * r][l] = (u32)x;
                w.v[i.o[0].reg + 2 * r + 1][l] = (u32)(x >> 32);
            } else {
                w.v[i.o[0].reg + r][l] = as<u32>(at(l, r));
            }
        }
}

// WMMA of 16 x 16 x 16 in waves of 32. RDNA3: lane l holds row l % 16 of A in full, both halves of
// the wave the same; results lie in rows 2r + l / 16. RDNA4: halves of the wave share the depth,
// results lie in rows r + 8 * (l / 16).
template <Type TA, Type TB = TA> void wmma(Wave& w, const Instruction& i, bool rdna4) {
    constexpr bool whole = TA == Type::i8;
    using Sum = std::conditional_t<whole, i32, float>;
    if (w.size != 32) return unmodelled(w, i);
    alignas(64) static thread_local Sum a[16][16], b[16][16], c[16][16];
    const int held = rdna4 ? 8 : 16;
    const auto value = [&](int k, int l, int e) -> Sum {
        const u32 reg = i.o[k].reg;
        if constexpr (!whole) {
            return (Sum)(k == 1 ? element<TA>(w, reg, l, e) : element<TB>(w, reg, l, e));
        } else {
            const u32 x = w.v[reg + e / 4][l] >> 8 * (e & 3) & 255;
            return i.neg_lo >> (k - 1) & 1 ? (i32)(i8)x : (i32)x;
        }
    };
    for (int l = 0; l < 32; ++l)
        for (int e = 0; e < held; ++e) {
            const int k = rdna4 ? l / 16 * 8 + e : e;
            a[k][l % 16] = value(1, l, e);
            b[k][l % 16] = value(2, l, e);
        }
    const auto row = [&](int l, int r) { return rdna4 ? r + 8 * (l / 16) : 2 * r + l / 16; };
    const Operand& from = i.o[3];
    for (int l = 0; l < 32; ++l)
        for (int r = 0; r < 8; ++r)
            c[row(l, r)][l % 16] =
                as<Sum>(from.kind == Kind::vector ? w.v[from.reg + r][l] : s32(w, from));
    for (int k = 0; k < 16; ++k)
        for (int m = 0; m < 16; ++m)
            for (int n = 0; n < 16; ++n) {
                if constexpr (whole) c[m][n] = (i32)((u32)c[m][n] + (u32)(a[k][m] * b[k][n]));
                else c[m][n] = std::fma(a[k][m], b[k][n], c[m][n]);
            }
    if (i.flags & CLAMP) return unmodelled(w, i);
    for (int l = 0; l < 32; ++l)
        for (int r = 0; r < 8; ++r)
            w.v[i.o[0].reg + r][l] = as<u32>(c[row(l, r)][l % 16]);
}

}  // namespace

#define MFMA(n, M, N, K, B, T) \
    MODEL(n) { mfma<M, N, K, B, Type::T>(w, i); }
// Two products at once where CDNA2 has four.
#define MFMA_PAIRS(n, M, N, K, B, T) \
    MODEL(n) { mfma<M, N, K, B, Type::T, Type::T, 2>(w, i); }
MFMA(v_mfma_f32_32x32x2_f32, 32, 32, 2, 1, f32)
MFMA(v_mfma_f32_16x16x4_f32, 16, 16, 4, 1, f32)
MFMA(v_mfma_f32_32x32x1_2b_f32, 32, 32, 1, 2, f32)
MFMA(v_mfma_f32_16x16x1_4b_f32, 16, 16, 1, 4, f32)
MFMA(v_mfma_f32_4x4x1_16b_f32, 4, 4, 1, 16, f32)
MFMA(v_mfma_f32_32x32x8_f16, 32, 32, 8, 1, f16)
MFMA(v_mfma_f32_16x16x16_f16, 16, 16, 16, 1, f16)
MFMA(v_mfma_f32_32x32x4_2b_f16, 32, 32, 4, 2, f16)
MFMA(v_mfma_f32_16x16x4_4b_f16, 16, 16, 4, 4, f16)
MFMA(v_mfma_f32_4x4x4_16b_f16, 4, 4, 4, 16, f16)
MFMA(v_mfma_f32_32x32x16_f16, 32, 32, 16, 1, f16)
MFMA(v_mfma_f32_16x16x32_f16, 16, 16, 32, 1, f16)
MFMA(v_mfma_f32_32x32x8_bf16, 32, 32, 8, 1, bf16)
MFMA(v_mfma_f32_16x16x16_bf16, 16, 16, 16, 1, bf16)
MFMA(v_mfma_f32_32x32x4_2b_bf16, 32, 32, 4, 2, bf16)
MFMA(v_mfma_f32_16x16x4_4b_bf16, 16, 16, 4, 4, bf16)
MFMA(v_mfma_f32_4x4x4_16b_bf16, 4, 4, 4, 16, bf16)
MFMA(v_mfma_f32_32x32x16_bf16, 32, 32, 16, 1, bf16)
MFMA(v_mfma_f32_16x16x32_bf16, 16, 16, 32, 1, bf16)
// CDNA2's names.
MFMA(v_mfma_f32_32x32x8bf16_1k, 32, 32, 8, 1, bf16)
MFMA(v_mfma_f32_16x16x16bf16_1k, 16, 16, 16, 1, bf16)
MFMA(v_mfma_f32_32x32x4bf16_1k, 32, 32, 4, 2, bf16)
MFMA(v_mfma_f32_16x16x4bf16_1k, 16, 16, 4, 4, bf16)
MFMA(v_mfma_f32_4x4x4bf16_1k, 4, 4, 4, 16, bf16)
MFMA_PAIRS(v_mfma_f32_32x32x4bf16, 32, 32, 4, 1, bf16)
MFMA_PAIRS(v_mfma_f32_16x16x8bf16, 16, 16, 8, 1, bf16)
MFMA_PAIRS(v_mfma_f32_32x32x2bf16, 32, 32, 2, 2, bf16)
MFMA_PAIRS(v_mfma_f32_16x16x2bf16, 16, 16, 2, 4, bf16)
MFMA_PAIRS(v_mfma_f32_4x4x2bf16, 4, 4, 2, 16, bf16)
MFMA(v_mfma_i32_32x32x8i8, 32, 32, 8, 1, i8)
MFMA(v_mfma_i32_16x16x16i8, 16, 16, 16, 1, i8)
MFMA(v_mfma_i32_32x32x16_i8, 32, 32, 16, 1, i8)
MFMA(v_mfma_i32_16x16x32_i8, 16, 16, 32, 1, i8)
MFMA(v_mfma_i32_32x32x32_i8, 32, 32, 32, 1, i8)
MFMA(v_mfma_i32_16x16x64_i8, 16, 16, 64, 1, i8)
MFMA(v_mfma_i32_32x32x4_2b_i8, 32, 32, 4, 2, i8)
MFMA(v_mfma_i32_16x16x4_4b_i8, 16, 16, 4, 4, i8)
MFMA(v_mfma_i32_4x4x4_16b_i8, 4, 4, 4, 16, i8)
MFMA(v_mfma_f64_16x16x4_f64, 16, 16, 4, 1, f64)
MFMA(v_mfma_f64_4x4x4_4b_f64, 4, 4, 4, 4, f64)
MFMA(v_mfma_f32_16x16x8_xf32, 16, 16, 8, 1, xf32)
MFMA(v_mfma_f32_32x32x4_xf32, 32, 32, 4, 1, xf32)

#define MFMA_SMALL(ta, tb)                                                                     \
    MODEL(v_mfma_f32_16x16x32_##ta##_##tb) { mfma<16, 16, 32, 1, Type::ta, Type::tb>(w, i); }  \
    MODEL(v_mfma_f32_32x32x16_##ta##_##tb) { mfma<32, 32, 16, 1, Type::ta, Type::tb>(w, i); }
MFMA_SMALL(fp8, fp8)
MFMA_SMALL(fp8, bf8)
MFMA_SMALL(bf8, fp8)
MFMA_SMALL(bf8, bf8)

MODEL(v_wmma_f32_16x16x16_f16) { wmma<Type::f16>(w, i, i.o[1].count == 4); }
MODEL(v_wmma_f32_16x16x16_bf16) { wmma<Type::bf16>(w, i, i.o[1].count == 4); }
#define WMMA_SMALL(ta, tb) \
    MODEL(v_wmma_f32_16x16x16_##ta##_##tb) { wmma<Type::ta, Type::tb>(w, i, true); }
WMMA_SMALL(fp8, fp8)
WMMA_SMALL(fp8, bf8)
WMMA_SMALL(bf8, fp8)
WMMA_SMALL(bf8, bf8)
MODEL(v_wmma_i32_16x16x16_iu8) { wmma<Type::i8>(w, i, i.o[1].count == 2); }

}  // namespace isa
