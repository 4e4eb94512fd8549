// Floats in other modes than the usual one: rounding to the nearest, with all denormals.
//
// A wave whose mode is another runs these models; what has none here and is computed alike in all
// modes runs its own, and the rest is refused by name.
#include <immintrin.h>

#include "lanes.h"
#include "numbers.h"

namespace isa {
namespace {

// What the mode says of one type: 32 bits have fields of their own, 16 and 64 share theirs.
struct Mode {
    u32 round;
    bool flushes_sources, flushes_results;
};
template <class T> Mode mode_of(const Wave& w) {
    const u32 by = sizeof(T) == 4 ? 0 : 2, denormals = w.mode >> (4 + by) & 3;
    return {w.mode >> by & 3, !(denormals & 1), !(denormals & 2)};
}

template <class T> constexpr double LEAST_NORMAL = sizeof(T) == 2   ? 0x1p-14
                                                   : sizeof(T) == 4 ? 0x1p-126
                                                                    : 0x1p-1022;
template <class T> T flushed(bool asked, T x) {
    return asked && std::fabs((double)x) < LEAST_NORMAL<T> ? (T)std::copysign(0., (double)x) : x;
}

// ---- one rounding

// The processor's own arithmetic of doubles, in a mode.
template <class F> double directed(u32 round, double a, double b, double c, F f) {
    constexpr u32 control[] = {0, 2, 1, 3};
    const u32 before = _mm_getcsr();
    _mm_setcsr((before & ~0x6000u) | control[round] << 13);
    asm volatile("" : "+x"(a), "+x"(b), "+x"(c) : : "memory");
    double r = f(a, b, c);
    asm volatile("" : "+x"(r) : : "memory");
    _mm_setcsr(before);
    return r;
}

template <class T> T sum(T a, T b, u32 round) {
    if constexpr (sizeof(T) == 8)
        return directed(round, a, b, 0, [](double x, double y, double) { return x + y; });
    else return narrowed<T>(odd_sum((double)a, (double)b, round), round);
}
template <class T> T product(T a, T b, u32 round) {
    if constexpr (sizeof(T) == 8)
        return directed(round, a, b, 0, [](double x, double y, double) { return x * y; });
    else return narrowed<T>((double)a * (double)b, round);
}
template <class T> T fused(T a, T b, T c, u32 round) {
    if constexpr (sizeof(T) == 8)
        return directed(round, a, b, c,
                        [](double x, double y, double z) { return std::fma(x, y, z); });
    else return narrowed<T>(odd_sum((double)a * (double)b, (double)c, round), round);
}
template <class T> T scaled(T a, i32 by, u32 round) {
    if constexpr (sizeof(T) == 8) {
        if (a == 0 || a != a || std::isinf(a)) return a;
        int e;
        const double m = std::frexp(a, &e);
        const i64 whole = std::min<i64>(std::max<i64>((i64)e + by, -1200), 1200);
        // Two factors, of which the first is exact and the second rounds.
        const int half = (int)whole / 2;
        return directed(round, std::ldexp(m, half), std::ldexp(1., (int)whole - half), 0,
                        [](double x, double y, double) { return x * y; });
    } else {
        return narrowed<T>(std::ldexp((double)a, std::min(std::max(by, -600), 600)), round);
    }
}

// ---- what comes before and after it

// Scales of results (mul:2 and the like) count where results are flushed and there is no IEEE mode.
template <class T> T delivered(const Wave& w, const Instruction& i, const Mode& mode, T x) {
    x = flushed(mode.flushes_results, x);
    if (!i.omod || !mode.flushes_results || w.machine->ieee) return x;
    const T r = flushed(true, scaled<T>(x, i.omod == 3 ? -1 : i.omod, mode.round));
    return r == 0 ? (T)0 : r;
}

// N sources of one type from the first on, and a result of it.
template <class T, int N, class F>
void arithmetic(Wave& w, const Instruction& i, F f) {
    BUFFER t[3][2 * LANES];
    Source s[3];
    for (int k = 0; k < N; ++k) s[k] = fetch<T>(w, i, k + 1, t[k]);
    const Mode mode = mode_of<T>(w);
    lanes<T>(w, i, [&](int l) {
        T x[3] = {};
        for (int k = 0; k < N; ++k) x[k] = flushed(mode.flushes_sources, get<T>(s[k], l));
        return delivered(w, i, mode, f(x[0], x[1], x[2], mode.round));
    });
}
// Likewise of a source and a result of two types; either may be an integer.
template <class D, class A, class F> void converted(Wave& w, const Instruction& i, F f) {
    BUFFER t[2 * LANES];
    const Source s = fetch<A>(w, i, 1, t);
    const Mode to = mode_of<D>(w);
    constexpr bool real = std::is_floating_point_v<A> || std::is_same_v<A, f16>;
    const bool flushes = real && mode_of<A>(w).flushes_sources;
    lanes<D>(w, i, [&](int l) {
        A a = get<A>(s, l);
        if constexpr (real) a = flushed(flushes, a);
        return delivered(w, i, to, (D)f(a, to.round));
    });
}

// What is exact, or within its ulp in each mode: its own model, on sources that are flushed before.
template <class T, bool RESULT, int FIRST = 1> void around(Wave& w, const Instruction& i) {
    const Mode mode = mode_of<T>(w);
    if (i.omod && mode.flushes_results && !w.machine->ieee && RESULT) return mode_refused(w, i);
    Instruction all = i;
    for (int k = FIRST; k < FIRST + 3 && mode.flushes_sources; ++k) {
        Operand& o = all.o[k];
        if (o.kind == Kind::none) break;
        BUFFER t[2 * LANES];
        const Source s = fetch<T>(w, i, k, t);
        const u16 reg = (u16)(FLUSHED + 2 * (k - FIRST));
        for (int l = 0; l < LANES; ++l) {
            const T x = flushed(true, get<T>(s, l));
            if constexpr (sizeof(T) == 2) w.v[reg][l] = as<u16>(x);
            else memcpy(&w.v[reg][l], &x, 4);
            if constexpr (sizeof(T) == 8) w.v[reg + 1][l] = (u32)(as<u64>(x) >> 32);
        }
        o = Operand();
        o.kind = Kind::vector, o.reg = reg, o.count = sizeof(T) == 8 ? 2 : 1;
        all.opsel &= ~(1u << (k - 1));
    }
    i.model(w, all);
    if (!RESULT || !mode.flushes_results) return;
    const u64 m = written(w, i);
    if constexpr (sizeof(T) == 2) {
        if (i.flags & SDWA) return mode_refused(w, i);
        const int by = i.opsel & 8 ? 16 : 0;
        for (int l = 0; l < LANES; ++l) {
            u32& d = w.v[i.o[0].reg][l];
            const u32 r = bits16(flushed(true, half(d >> by)));
            if (m >> l & 1) d = (d & ~(0xffffu << by)) | r << by;
        }
        return;
    }
    u32 *d = w.v[i.o[0].reg], *h = w.v[i.o[0].reg + (sizeof(T) == 8)];
    for (int l = 0; l < LANES; ++l) {
        if (!(m >> l & 1)) continue;
        if constexpr (sizeof(T) == 4) d[l] = as<u32>(flushed(true, as<float>(d[l])));
        if constexpr (sizeof(T) == 8) {
            const u64 r = as<u64>(flushed(true, as<double>((u64)h[l] << 32 | d[l])));
            d[l] = (u32)r, h[l] = (u32)(r >> 32);
        }
    }
}

template <class F> void pairs_of_singles(Wave& w, const Instruction& i, int sources, F f) {
    const Mode mode = mode_of<float>(w);
    packed_singles(w, i, sources, [&](float a, float b, float c) {
        float x[3] = {a, b, c};
        for (float& one : x) one = isa::flushed(mode.flushes_sources, one);
        return isa::flushed(mode.flushes_results, f(x[0], x[1], x[2], mode.round));
    });
}
template <int N, class F> void pairs_of_halves(Wave& w, const Instruction& i, F f) {
    const Mode mode = mode_of<f16>(w);
    packed_half<N>(w, i, true, [&](const u32* x) -> u32 {
        f16 s[3] = {};
        for (int k = 0; k < N; ++k) s[k] = isa::flushed(mode.flushes_sources, half(x[k]));
        const f16 r = isa::flushed(mode.flushes_results, f(s[0], s[1], s[2], mode.round));
        return bits16(limited(r, i));
    });
}

// The quotient's last step but one: scaled before it is rounded.
void last_but_one(Wave& w, const Instruction& i) {
    const u64 far = w.vcc();
    BUFFER t[3][LANES];
    Source s[3];
    for (int k = 0; k < 3; ++k) s[k] = fetch<float>(w, i, k + 1, t[k]);
    const Mode mode = mode_of<float>(w);
    lanes<float>(w, i, [&](int l) {
        float x[3];
        for (int k = 0; k < 3; ++k) x[k] = isa::flushed(mode.flushes_sources, get<float>(s[k], l));
        double r = odd_sum((double)x[0] * (double)x[1], (double)x[2], mode.round);
        if (far >> l & 1) r = std::ldexp(r, (bits(x[2]) >> 23 & 255) > 127 ? 64 : -64);
        return delivered(w, i, mode, narrowed<float>(r, mode.round));
    });
}

}  // namespace

#define MODED(name)                                                                 \
    static void moded_##name(Wave& w, const Instruction& i);                        \
    static const Moded registered_moded_##name(#name, moded_##name);                \
    static void moded_##name([[maybe_unused]] Wave& w, [[maybe_unused]] const Instruction& i)
#define AROUND(name, T, ...) static const Moded registered_moded_##name(#name, around<T, __VA_ARGS__>);
#define ARITHMETIC(name, T, N, e)                                                   \
    MODED(name) {                                                                   \
        arithmetic<T, N>(w, i, [](T a, [[maybe_unused]] T b, [[maybe_unused]] T c,  \
                                  [[maybe_unused]] u32 round) -> T { return e; });  \
    }
#define CONVERTED(name, D, A, e) \
    MODED(name) { converted<D, A>(w, i, [](A a, [[maybe_unused]] u32 round) { return e; }); }

#define COMPARED(t, T, n) AROUND(v_cmp_##n##_##t, T, false) AROUND(v_cmpx_##n##_##t, T, false)
#define OF_FLOATS(t, T)                                                             \
    ARITHMETIC(v_add_##t, T, 2, sum(a, b, round))                                   \
    ARITHMETIC(v_mul_##t, T, 2, product(a, b, round))                               \
    ARITHMETIC(v_fma_##t, T, 3, fused(a, b, c, round))                              \
    MODED(v_fmac_##t) {                                                             \
        arithmetic<T, 3>(w, with_sum(i), fused<T>);                                 \
    }                                                                               \
    MODED(v_ldexp_##t) {                                                            \
        BUFFER u[LANES];                                                            \
        using By = std::conditional_t<sizeof(T) == 2, i16, i32>;                    \
        const Source by = fetch<By>(w, i, 2, u);                                    \
        BUFFER s[2 * LANES];                                                        \
        const Source a = fetch<T>(w, i, 1, s);                                      \
        const Mode mode = mode_of<T>(w);                                            \
        lanes<T>(w, i, [&](int l) {                                                 \
            const T x = flushed(mode.flushes_sources, get<T>(a, l));                \
            return delivered(w, i, mode, scaled<T>(x, get<By>(by, l), mode.round)); \
        });                                                                         \
    }                                                                               \
    AROUND(v_min_##t, T, true)                                                      \
    AROUND(v_max_##t, T, true)                                                      \
    AROUND(v_min_num_##t, T, true)                                                  \
    AROUND(v_max_num_##t, T, true)                                                  \
    AROUND(v_floor_##t, T, true)                                                    \
    AROUND(v_ceil_##t, T, true)                                                     \
    AROUND(v_trunc_##t, T, true)                                                    \
    AROUND(v_rndne_##t, T, true)                                                    \
    AROUND(v_frexp_mant_##t, T, true)                                               \
    AROUND(v_rcp_##t, T, true)                                                      \
    AROUND(v_rsq_##t, T, true)                                                      \
    AROUND(v_sqrt_##t, T, true)                                                     \
    COMPARED(t, T, lt)                                                              \
    COMPARED(t, T, le)                                                              \
    COMPARED(t, T, gt)                                                              \
    COMPARED(t, T, ge)                                                              \
    COMPARED(t, T, eq)                                                              \
    COMPARED(t, T, lg)                                                              \
    COMPARED(t, T, neq)                                                             \
    COMPARED(t, T, nlt)                                                             \
    COMPARED(t, T, nle)                                                             \
    COMPARED(t, T, ngt)                                                             \
    COMPARED(t, T, nge)                                                             \
    COMPARED(t, T, nlg)                                                             \
    COMPARED(t, T, o)                                                               \
    COMPARED(t, T, u)
OF_FLOATS(f16, f16)
OF_FLOATS(f32, float)
OF_FLOATS(f64, double)
#define OF_NARROW_FLOATS(t, T)                                                      \
    ARITHMETIC(v_sub_##t, T, 2, sum(a, (T)-b, round))                               \
    ARITHMETIC(v_subrev_##t, T, 2, sum(b, (T)-a, round))                            \
    ARITHMETIC(v_fmaak_##t, T, 3, fused(a, b, c, round))                            \
    ARITHMETIC(v_fmamk_##t, T, 3, fused(a, b, c, round))                            \
    AROUND(v_min3_##t, T, true)                                                     \
    AROUND(v_max3_##t, T, true)                                                     \
    AROUND(v_med3_##t, T, true)                                                     \
    AROUND(v_exp_##t, T, true)                                                      \
    AROUND(v_log_##t, T, true)                                                      \
    AROUND(v_sin_##t, T, true)                                                      \
    AROUND(v_cos_##t, T, true)
OF_NARROW_FLOATS(f16, f16)
OF_NARROW_FLOATS(f32, float)
AROUND(v_rcp_iflag_f32, float, true)
AROUND(v_frexp_exp_i32_f32, float, false)
AROUND(v_frexp_exp_i32_f64, double, false)
AROUND(v_frexp_exp_i16_f16, f16, false)
AROUND(v_div_scale_f32, float, true, 2)
AROUND(v_div_scale_f64, double, true, 2)
MODED(v_div_fmas_f32) { last_but_one(w, i); }
AROUND(v_div_fixup_f32, float, true)
AROUND(v_div_fixup_f64, double, true)
AROUND(v_div_fixup_f16, f16, true)

CONVERTED(v_cvt_f32_i32, float, i32, narrowed<float>(a, round))
CONVERTED(v_cvt_f32_u32, float, u32, narrowed<float>(a, round))
CONVERTED(v_cvt_f16_i16, f16, i16, narrowed<f16>(a, round))
CONVERTED(v_cvt_f16_u16, f16, u16, narrowed<f16>(a, round))
CONVERTED(v_cvt_f16_f32, f16, float, narrowed<f16>((double)a, round))
CONVERTED(v_cvt_f32_f16, float, f16, (float)a)
CONVERTED(v_cvt_f64_f32, double, float, (double)a)
MODED(v_cvt_f32_f64) {  // rounds as doubles do
    const u32 round = mode_of<double>(w).round;
    converted<float, double>(w, i, [&](double a, u32) { return narrowed<float>(a, round); });
}

MODED(v_pk_add_f32) {
    pairs_of_singles(w, i, 2, [](float a, float b, float, u32 r) { return sum(a, b, r); });
}
MODED(v_pk_mul_f32) {
    pairs_of_singles(w, i, 2, [](float a, float b, float, u32 r) { return product(a, b, r); });
}
MODED(v_pk_fma_f32) { pairs_of_singles(w, i, 3, fused<float>); }
MODED(v_pk_add_f16) {
    pairs_of_halves<2>(w, i, [](f16 a, f16 b, f16, u32 r) { return sum(a, b, r); });
}
MODED(v_pk_mul_f16) {
    pairs_of_halves<2>(w, i, [](f16 a, f16 b, f16, u32 r) { return product(a, b, r); });
}
MODED(v_pk_fma_f16) { pairs_of_halves<3>(w, i, fused<f16>); }

// ---- which model an instruction has

static std::unordered_map<std::string, Model>& moded_models() {
    static std::unordered_map<std::string, Model> all;
    return all;
}
Moded::Moded(const char* name, Model model) { moded_models()[name] = model; }
void mode_refused(Wave& w, const Instruction& i) {
    w.machine->stop(Finding::mode, w, i.pc, 0, w.mode, i.name);
}

// Of floats, and yet the same in all modes: exact, truncated, or asking for bits.
static bool same_in_all(const std::string& name) {
    static const char* const whole[] = {
        "v_cvt_f64_i32", "v_cvt_f64_u32", "v_cvt_i32_f32", "v_cvt_u32_f32", "v_cvt_i32_f64",
        "v_cvt_u32_f64", "v_cvt_i16_f16", "v_cvt_u16_f16"};
    static const char* const begins[] = {"v_cvt_f32_ubyte", "v_cmp_class_", "v_cmpx_class_"};
    for (const char* one : whole)
        if (name == one) return true;
    for (const char* one : begins)
        if (!name.compare(0, strlen(one), one)) return true;
    return false;
}
static bool of_floats(const std::string& name) {
    for (const char* part : {"_f16", "_f32", "_f64", "f16_", "f32_", "f64_", "bf16", "fp8", "bf8"})
        if (name.find(part) != std::string::npos) return true;
    return name.find("mfma") != std::string::npos || name.find("wmma") != std::string::npos;
}
void add_moded(const Table& table, Program& program) {
    const auto& known = moded_models();
    for (const Instruction& i : program.code) {
        std::string name = table.names[i.name];
        program.sets_mode |= name == "s_round_mode" || name == "s_denorm_mode" ||
                             !name.compare(0, 8, "s_setreg");
        if (!name.compare(0, 7, "v_dual_")) name.erase(2, 5);
        // A pair's multiply-add takes its sum as a source.
        if (name == "v_fmac_f32" && i.o[3].kind != Kind::none) name = "v_fma_f32";
        const auto found = known.find(name);
        const bool plain = i.model == unmodelled || same_in_all(name) || !of_floats(name);
        program.moded.push_back(plain ? i.model : found == known.end() ? mode_refused : found->second);
    }
}

}  // namespace isa
