// The operations on elements, under the names that ring code calls (translate/ring_code.py). Each
// takes and returns bits. What a function has no law for is a random function of its argument.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "ring_state.h"

namespace simt::ring {
namespace {

// Decisions nearer than this to the other are those that rounding can turn.
constexpr double close_by = 1e-9;

Value special(double x) {  // an infinity or NaN; what is finite after all stands for itself
    return number(x);
}
Value with_shadow(Value v, double x) {
    constexpr double most = std::numeric_limits<double>::max();
    v.shadow = x > most ? most : x < -most ? -most : x != x ? 0 : x;
    return v;
}

Value sum(const Value& a, const Value& b) {
    if (!a.finite || !b.finite) return special(a.shadow + b.shadow);
    Value r;
    r.has_flat = a.has_flat && b.has_flat;
    if (r.has_flat) r.flat = state.flat.plus(a.flat, b.flat);
    r.deep = state.deep.plus(a.deep, b.deep);
    return with_shadow(r, a.shadow + b.shadow);
}
Value product(const Value& a, const Value& b) {
    if (!a.finite || !b.finite) return special(a.shadow * b.shadow);
    if (a.zero() || b.zero()) return Value{};
    Value r;
    r.has_flat = a.has_flat && b.has_flat;
    if (r.has_flat) r.flat = state.flat.times(a.flat, b.flat);
    r.deep = state.deep.times(a.deep, b.deep);
    return with_shadow(r, a.shadow * b.shadow);
}
Value reciprocal(const Value& a) {
    if (!a.finite || a.zero()) return special(1 / a.shadow);
    Value r;
    r.has_flat = a.has_flat;
    if (r.has_flat) r.flat = state.flat.reciprocal(a.flat);
    r.deep = state.deep.reciprocal(a.deep);
    return with_shadow(r, 1 / a.shadow);
}
Value quotient(const Value& a, const Value& b) {
    if (!a.finite || !b.finite || b.zero()) return special(a.shadow / b.shadow);
    return with_shadow(product(a, reciprocal(b)), a.shadow / b.shadow);
}

// A random element for each function and arguments.
Value unknown(unsigned function, const Value& a, const Value& b, double shadow) {
    if (!a.finite || !b.finite || !std::isfinite(shadow)) return special(shadow);
    ++account.functions;
    uint64_t h = scattered(state.seed + function);
    for (uint64_t word : {a.deep.re, a.deep.im, b.deep.re, b.deep.im}) h = scattered(h ^ word) + word;
    Value r;
    r.flat = state.flat.from(scattered(h ^ 1));
    r.deep = state.deep.from(scattered(h ^ 2));
    return with_shadow(r, shadow);
}

unsigned name(const char* function) {
    unsigned h = 2166136261u;
    while (*function) h = (h ^ (unsigned char)*function++) * 16777619u;
    return h;
}

// ---- functions with laws

// A homomorphism from sums to products: base to the real part, turn to the imaginary one.
Value power_of(const Value& a, double shadow, unsigned otherwise) {
    if (!a.finite) return special(shadow);
    if (a.zero()) return number(1);
    if (!a.has_flat) return unknown(otherwise, a, Value{}, shadow);
    const Field &p = state.flat, &q = state.deep;
    Value r;
    r.has_flat = false;
    r.deep.re = q.power(state.base, p.plain(a.flat.re));
    if (a.flat.im) r.deep.re = q.mul(r.deep.re, q.power(state.turn, p.plain(a.flat.im)));
    return with_shadow(r, shadow);
}
Value exponential(const Value& a) { return power_of(a, std::exp(a.shadow), name("exp")); }

constexpr double ln2 = 0.693147180559945309417, ln10 = 2.30258509299404568402;
Value scaled_exponential(const Value& a, double by, double shadow) {
    return with_shadow(exponential(product(a, number(by))), shadow);
}
Value root(const Value& a) {
    const double shadow = std::sqrt(a.shadow);
    if (!a.finite || a.zero() || shadow != shadow) return special(shadow);
    const Value whole = number(shadow);
    if (product(whole, whole).deep == a.deep) return whole;
    Value r;
    r.has_flat = a.has_flat;
    if (!state.deep.root_of(a.deep, r.deep) || (r.has_flat && !state.flat.root_of(a.flat, r.flat)))
        return unknown(name("sqrt"), a, Value{}, shadow);
    return with_shadow(r, shadow);
}

// cos and sin by Euler's formula: the fields have a root of -1.
void turned(const Value& a, Value& cosine, Value& sine) {
    const double c = std::cos(a.shadow), s = std::sin(a.shadow);
    if (!a.finite || !a.has_flat) {
        cosine = unknown(name("cos"), a, Value{}, c);
        sine = unknown(name("sin"), a, Value{}, s);
        return;
    }
    if (a.zero()) {
        cosine = number(1), sine = Value{};
        return;
    }
    Value around = a;  // i * a
    around.flat = {state.flat.neg(a.flat.im), a.flat.re};
    const Value e = power_of(around, 1, name("cos"));
    const Value f = reciprocal(e), half = number(0.5);
    cosine = with_shadow(product(sum(e, f), half), c);
    Value difference = product(sum(e, negated(f)), half);
    difference.deep = {difference.deep.im, state.deep.neg(difference.deep.re)};  // over i
    sine = with_shadow(difference, s);
}

Value hyperbolic_tangent(const Value& a) {
    const double shadow = std::tanh(a.shadow);
    if (!a.finite) return special(shadow);
    const Value e = exponential(sum(a, a));
    return with_shadow(quotient(sum(e, number(-1)), sum(e, number(1))), shadow);
}

Value whole_power(const Value& a, unsigned n) {
    Value result = number(1), square = a;
    for (; n; n >>= 1, square = product(square, square))
        if (n & 1) result = product(result, square);
    return result;
}
Value power(const Value& a, const Value& b) {
    const double shadow = std::pow(a.shadow, b.shadow), n = b.shadow;
    if (!a.finite || !b.finite || !std::isfinite(shadow)) return special(shadow);
    if (number(n).deep == b.deep) {
        if (n == 0.5) return root(a);
        if (n == -0.5) return reciprocal(root(a));
        if (n == std::nearbyint(n) && std::fabs(n) <= 65536) {
            const Value r = whole_power(a, (unsigned)std::fabs(n));
            return with_shadow(n < 0 ? reciprocal(r) : r, shadow);
        }
    }
    return unknown(name("pow"), a, b, shadow);
}

// ---- decisions

void decided(double apart, double scale) {
    ++account.comparisons;
    if (std::fabs(apart) <= close_by * scale) ++account.close;
}
bool same(const Value& a, const Value& b) {
    return a.deep == b.deep && (!a.has_flat || !b.has_flat || a.flat == b.flat);
}
// -1, 0, 1; 2 where one is not a number.
int compared(const Value& a, const Value& b) {
    if (!a.finite || !b.finite)
        return a.shadow < b.shadow ? -1 : a.shadow > b.shadow ? 1 : a.shadow == b.shadow ? 0 : 2;
    if (same(a, b)) return 0;
    decided(a.shadow - b.shadow, std::fmax(std::fabs(a.shadow), std::fabs(b.shadow)));
    if (a.shadow == b.shadow) return a.deep.re < b.deep.re ? -1 : 1;
    return a.shadow < b.shadow ? -1 : 1;
}
Value chosen(const Value& a, const Value& b, bool larger) {  // a NaN loses
    if (a.shadow != a.shadow) return b;
    if (b.shadow != b.shadow) return a;
    const int order = compared(a, b);
    return (order > 0) == larger || order == 0 ? a : b;
}

Value whole(const Value& a, double to) {
    if (!a.finite) return a;
    const double nearest = std::nearbyint(a.shadow);
    if (nearest == a.shadow && same(number(nearest), a)) return a;
    ++account.integers;
    const double twice = std::nearbyint(2 * a.shadow) / 2;  // halves decide where one rounds
    if (std::fabs(a.shadow - twice) <= close_by * std::fmax(1, std::fabs(a.shadow))) ++account.close;
    return number(to);
}

Value remainder_of(const Value& a, const Value& b, double shadow) {
    if (!std::isfinite(shadow) || b.zero()) return special(shadow);
    const double times = std::nearbyint((a.shadow - shadow) / b.shadow);
    ++account.integers;
    return with_shadow(sum(a, negated(product(b, number(times)))), shadow);
}

int64_t integer(const Value& a) {
    const double x = std::trunc(whole(a, std::trunc(a.shadow)).shadow);
    return x >= 9223372036854775808.0 || x < -9223372036854775808.0 || x != x ? INT64_MIN : (int64_t)x;
}
uint64_t natural(const Value& a) {
    const double x = std::trunc(whole(a, std::trunc(a.shadow)).shadow);
    return x >= 9223372036854775808.0 ? (uint64_t)(x - 9223372036854775808.0) + (1ull << 63)
                                      : (uint64_t)(int64_t)x;
}
Value from_integer(uint64_t size, bool negative) {
    Value v;
    v.flat = state.flat.from(size), v.deep = state.deep.from(size), v.shadow = (double)size;
    return negative ? negated(v) : v;
}

Value scaled(const Value& a, int n) {
    if (!a.finite || a.zero()) return a;
    Value r = a;
    for (int left = n; left; left -= left > 0 ? std::min(left, 1000) : std::max(left, -1000))
        r = product(r, number(std::ldexp(1.0, left > 0 ? std::min(left, 1000) : std::max(left, -1000))));
    return with_shadow(r, std::ldexp(a.shadow, n));
}

}  // namespace
}  // namespace simt::ring

using namespace simt::ring;

#define RING extern "C" __attribute__((visibility("default")))

#define RING_UNARY(NAME, F, BITS, FORMAT, ...)        \
    RING BITS simt_ring_##NAME##_##F(BITS x) {        \
        const Value a = read(FORMAT, x);              \
        return (BITS)written(FORMAT, __VA_ARGS__);    \
    }
#define RING_BINARY(NAME, F, BITS, FORMAT, ...)       \
    RING BITS simt_ring_##NAME##_##F(BITS x, BITS y) { \
        const Value a = read(FORMAT, x), b = read(FORMAT, y); \
        return (BITS)written(FORMAT, __VA_ARGS__);    \
    }
#define RING_EXACT(NAME, F, BITS, FORMAT)  /* without a law */ \
    RING_UNARY(NAME, F, BITS, FORMAT,                 \
               unknown(name(#NAME), a, Value{}, std::NAME(a.shadow)))
#define RING_ODD(NAME, F, BITS, FORMAT)  /* f(-x) = -f(x) */ \
    RING_UNARY(NAME, F, BITS, FORMAT,                 \
               a.shadow < 0 ? negated(unknown(name(#NAME), negated(a), Value{}, std::NAME(-a.shadow))) \
                            : a.zero() ? a : unknown(name(#NAME), a, Value{}, std::NAME(a.shadow)))
#define RING_PREDICATE(NAME, F, BITS, FORMAT, ...)    \
    RING uint32_t simt_ring_fcmp_##NAME##_##F(BITS x, BITS y) { \
        const int order = compared(read(FORMAT, x), read(FORMAT, y)); \
        return __VA_ARGS__;                           \
    }

#define RING_FORMAT(F, BITS, FORMAT)                                                       \
    RING_BINARY(fadd, F, BITS, FORMAT, sum(a, b))                                          \
    RING_BINARY(fsub, F, BITS, FORMAT, sum(a, negated(b)))                                 \
    RING_BINARY(fmul, F, BITS, FORMAT, product(a, b))                                      \
    RING_BINARY(fdiv, F, BITS, FORMAT, quotient(a, b))                                     \
    RING_BINARY(frem, F, BITS, FORMAT, remainder_of(a, b, std::fmod(a.shadow, b.shadow)))  \
    RING_BINARY(fmod, F, BITS, FORMAT, remainder_of(a, b, std::fmod(a.shadow, b.shadow)))  \
    RING_BINARY(remainder, F, BITS, FORMAT,                                                \
                remainder_of(a, b, std::remainder(a.shadow, b.shadow)))                    \
    RING BITS simt_ring_fma_##F(BITS x, BITS y, BITS z) {                                  \
        const Value a = read(FORMAT, x), b = read(FORMAT, y), c = read(FORMAT, z);         \
        return (BITS)written(FORMAT, sum(product(a, b), c));                               \
    }                                                                                      \
    RING_UNARY(sqrt, F, BITS, FORMAT, root(a))                                             \
    RING_UNARY(exp, F, BITS, FORMAT, exponential(a))                                       \
    RING_UNARY(exp2, F, BITS, FORMAT, scaled_exponential(a, ln2, std::exp2(a.shadow)))       \
    RING_UNARY(exp10, F, BITS, FORMAT, scaled_exponential(a, ln10, std::pow(10, a.shadow))) \
    RING_UNARY(expm1, F, BITS, FORMAT,                                                     \
               with_shadow(sum(exponential(a), number(-1)), std::expm1(a.shadow)))         \
    RING_UNARY(sinh, F, BITS, FORMAT,                                                      \
               with_shadow(product(sum(exponential(a), negated(exponential(negated(a)))),  \
                                   number(0.5)), std::sinh(a.shadow)))                     \
    RING_UNARY(cosh, F, BITS, FORMAT,                                                      \
               with_shadow(product(sum(exponential(a), exponential(negated(a))),           \
                                   number(0.5)), std::cosh(a.shadow)))                     \
    RING_UNARY(tanh, F, BITS, FORMAT, hyperbolic_tangent(a))                               \
    RING_UNARY(cos, F, BITS, FORMAT, [&] { Value c, s; turned(a, c, s); return c; }())     \
    RING_UNARY(sin, F, BITS, FORMAT, [&] { Value c, s; turned(a, c, s); return s; }())     \
    RING_UNARY(tan, F, BITS, FORMAT, [&] { Value c, s; turned(a, c, s); return quotient(s, c); }()) \
    RING void simt_ring_sincos_##F(BITS x, BITS* s, BITS* c) {                             \
        Value cosine, sine;                                                                \
        turned(read(FORMAT, x), cosine, sine);                                             \
        *s = (BITS)written(FORMAT, sine), *c = (BITS)written(FORMAT, cosine);              \
    }                                                                                      \
    RING_EXACT(log, F, BITS, FORMAT)                                                       \
    RING_EXACT(log2, F, BITS, FORMAT)                                                      \
    RING_EXACT(log10, F, BITS, FORMAT)                                                     \
    RING_UNARY(log1p, F, BITS, FORMAT, unknown(name("log"), sum(a, number(1)), Value{},    \
                                               std::log1p(a.shadow)))                      \
    RING_EXACT(acos, F, BITS, FORMAT)                                                      \
    RING_EXACT(acosh, F, BITS, FORMAT)                                                     \
    RING_ODD(asin, F, BITS, FORMAT)                                                        \
    RING_ODD(asinh, F, BITS, FORMAT)                                                       \
    RING_ODD(atan, F, BITS, FORMAT)                                                        \
    RING_ODD(atanh, F, BITS, FORMAT)                                                       \
    RING_ODD(cbrt, F, BITS, FORMAT)                                                        \
    RING_ODD(erf, F, BITS, FORMAT)                                                         \
    RING_UNARY(erfc, F, BITS, FORMAT, [&] {                                                \
        const bool minus = a.shadow < 0;                                                   \
        const Value e = a.zero() ? a : unknown(name("erf"), minus ? negated(a) : a, Value{}, \
                                               std::erf(std::fabs(a.shadow)));             \
        return with_shadow(sum(number(1), minus ? e : negated(e)), std::erfc(a.shadow));   \
    }())                                                                                   \
    RING_EXACT(tgamma, F, BITS, FORMAT)                                                    \
    RING_EXACT(lgamma, F, BITS, FORMAT)                                                    \
    RING_UNARY(j0, F, BITS, FORMAT, unknown(name("j0"), a, Value{}, ::j0(a.shadow)))       \
    RING_UNARY(j1, F, BITS, FORMAT, unknown(name("j1"), a, Value{}, ::j1(a.shadow)))       \
    RING_UNARY(y0, F, BITS, FORMAT, unknown(name("y0"), a, Value{}, ::y0(a.shadow)))       \
    RING_UNARY(y1, F, BITS, FORMAT, unknown(name("y1"), a, Value{}, ::y1(a.shadow)))       \
    RING_UNARY(floor, F, BITS, FORMAT, whole(a, std::floor(a.shadow)))                     \
    RING_UNARY(ceil, F, BITS, FORMAT, whole(a, std::ceil(a.shadow)))                       \
    RING_UNARY(trunc, F, BITS, FORMAT, whole(a, std::trunc(a.shadow)))                     \
    RING_UNARY(round, F, BITS, FORMAT, whole(a, std::round(a.shadow)))                     \
    RING_UNARY(rint, F, BITS, FORMAT, whole(a, std::nearbyint(a.shadow)))                  \
    RING_UNARY(logb, F, BITS, FORMAT, number(std::logb(a.shadow)))                         \
    RING_BINARY(pow, F, BITS, FORMAT, power(a, b))                                         \
    RING_BINARY(atan2, F, BITS, FORMAT,                                                    \
                unknown(name("atan2"), a, b, std::atan2(a.shadow, b.shadow)))              \
    RING_BINARY(hypot, F, BITS, FORMAT,                                                    \
                a.finite && b.finite ? root(sum(product(a, a), product(b, b)))             \
                                     : special(std::hypot(a.shadow, b.shadow)))            \
    RING_BINARY(fdim, F, BITS, FORMAT, compared(a, b) == 1 ? sum(a, negated(b)) : Value{}) \
    RING_BINARY(nextafter, F, BITS, FORMAT, ((void)b, ++account.lost, a))                  \
    RING_BINARY(maxnum, F, BITS, FORMAT, chosen(a, b, true))                               \
    RING_BINARY(minnum, F, BITS, FORMAT, chosen(a, b, false))                              \
    RING_BINARY(maximum, F, BITS, FORMAT, a.shadow != a.shadow ? a : b.shadow != b.shadow ? b \
                                                             : chosen(a, b, true))         \
    RING_BINARY(minimum, F, BITS, FORMAT, a.shadow != a.shadow ? a : b.shadow != b.shadow ? b \
                                                             : chosen(a, b, false))        \
    RING BITS simt_ring_ldexp_##F(BITS x, int64_t n) {                                     \
        return (BITS)written(FORMAT, scaled(read(FORMAT, x), (int)n));                     \
    }                                                                                      \
    RING BITS simt_ring_powi_##F(BITS x, int64_t n) {                                      \
        return (BITS)written(FORMAT, power(read(FORMAT, x), number((double)n)));           \
    }                                                                                      \
    RING BITS simt_ring_frexp_##F(BITS x, int* n) {                                        \
        const Value a = read(FORMAT, x);                                                   \
        std::frexp(a.shadow, n);                                                           \
        return (BITS)written(FORMAT, a.finite ? scaled(a, -*n) : a);                       \
    }                                                                                      \
    RING BITS simt_ring_modf_##F(BITS x, BITS* part) {                                     \
        const Value a = read(FORMAT, x), all = whole(a, std::trunc(a.shadow));             \
        *part = (BITS)written(FORMAT, all);                                                \
        return (BITS)written(FORMAT, a.finite ? sum(a, negated(all)) : Value{});           \
    }                                                                                      \
    RING BITS simt_ring_remquo_##F(BITS x, BITS y, int* n) {                               \
        const Value a = read(FORMAT, x), b = read(FORMAT, y);                              \
        const double rest = std::remquo(a.shadow, b.shadow, n);                            \
        return (BITS)written(FORMAT, remainder_of(a, b, rest));                            \
    }                                                                                      \
    RING int64_t simt_ring_ilogb_##F(BITS x) { return std::ilogb(read(FORMAT, x).shadow); } \
    RING int64_t simt_ring_lrint_##F(BITS x) {                                             \
        const Value a = read(FORMAT, x);                                                   \
        return integer(whole(a, std::nearbyint(a.shadow)));                                \
    }                                                                                      \
    RING int64_t simt_ring_lround_##F(BITS x) {                                            \
        const Value a = read(FORMAT, x);                                                   \
        return integer(whole(a, std::round(a.shadow)));                                    \
    }                                                                                      \
    RING int64_t simt_ring_fptosi_##F(BITS x) { return integer(read(FORMAT, x)); }         \
    RING uint64_t simt_ring_fptoui_##F(BITS x) { return natural(read(FORMAT, x)); }        \
    RING BITS simt_ring_sitofp_##F(int64_t x) {                                            \
        return (BITS)written(FORMAT, from_integer(x < 0 ? 0 - (uint64_t)x : x, x < 0));    \
    }                                                                                      \
    RING BITS simt_ring_uitofp_##F(uint64_t x) {                                           \
        return (BITS)written(FORMAT, from_integer(x, false));                              \
    }                                                                                      \
    RING double simt_ring_shadow_##F(BITS x) {                                             \
        ++account.lost;                                                                    \
        return read(FORMAT, x).shadow;                                                     \
    }                                                                                      \
    RING uint32_t simt_ring_fpclass_##F(BITS x, uint32_t mask) {                           \
        const Value a = read(FORMAT, x);                                                   \
        const double s = a.shadow;                                                         \
        const bool minus = std::signbit(s);                                                \
        if (s != s) return (mask & 3) != 0;                                                \
        if (!a.finite) return (mask & (minus ? 4u : 512u)) != 0;                           \
        if (a.zero()) return (mask & (x ? 32u : 64u)) != 0;                                \
        return (mask & (minus ? 8u : 256u)) != 0;                                          \
    }                                                                                      \
    RING_PREDICATE(oeq, F, BITS, FORMAT, order == 0)                                       \
    RING_PREDICATE(ogt, F, BITS, FORMAT, order == 1)                                       \
    RING_PREDICATE(oge, F, BITS, FORMAT, order == 1 || order == 0)                         \
    RING_PREDICATE(olt, F, BITS, FORMAT, order == -1)                                      \
    RING_PREDICATE(ole, F, BITS, FORMAT, order <= 0)                                       \
    RING_PREDICATE(one, F, BITS, FORMAT, order == 1 || order == -1)                        \
    RING_PREDICATE(ord, F, BITS, FORMAT, order != 2)                                       \
    RING_PREDICATE(ueq, F, BITS, FORMAT, order == 0 || order == 2)                         \
    RING_PREDICATE(ugt, F, BITS, FORMAT, order >= 1)                                       \
    RING_PREDICATE(uge, F, BITS, FORMAT, order != -1)                                      \
    RING_PREDICATE(ult, F, BITS, FORMAT, order == -1 || order == 2)                        \
    RING_PREDICATE(ule, F, BITS, FORMAT, order != 1)                                       \
    RING_PREDICATE(une, F, BITS, FORMAT, order != 0)                                       \
    RING_PREDICATE(uno, F, BITS, FORMAT, order == 2)
RING_FORMAT(f16, uint16_t, Format::f16)
RING_FORMAT(f32, uint32_t, Format::f32)
RING_FORMAT(f64, uint64_t, Format::f64)

// Conversions lose nothing: an element stays the same in each format.
#define RING_CONVERSION(FROM, FROM_BITS, TO, TO_BITS)                                      \
    RING TO_BITS simt_ring_##FROM##_to_##TO(FROM_BITS x) {                                 \
        return (TO_BITS)written(Format::TO, read(Format::FROM, x));                        \
    }
RING_CONVERSION(f16, uint16_t, f32, uint32_t)
RING_CONVERSION(f16, uint16_t, f64, uint64_t)
RING_CONVERSION(f32, uint32_t, f64, uint64_t)
RING_CONVERSION(f32, uint32_t, f16, uint16_t)
RING_CONVERSION(f64, uint64_t, f16, uint16_t)
RING_CONVERSION(f64, uint64_t, f32, uint32_t)
RING_CONVERSION(bf16, uint16_t, f32, uint32_t)
RING_CONVERSION(bf16, uint16_t, f64, uint64_t)
RING_CONVERSION(f32, uint32_t, bf16, uint16_t)
RING_CONVERSION(f64, uint64_t, bf16, uint16_t)

RING void simt_ring_lost() { ++account.lost; }
RING void simt_ring_infinity(uint32_t negative) { note_infinity(negative != 0); }
