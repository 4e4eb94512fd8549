// PTX's registers and the instructions that need nobody else: arithmetic, bits, comparisons,
// conversions. Names and operand orders are PTX's; the translator (asm.py) writes the calls.
#pragma once
#include <type_traits>

#include "integer.h"
#include "math.h"
#include "narrow.h"
#include "warp.h"

namespace simt {
namespace ptx {

using numbers::punned;
using numbers::Round;

// ---- registers ---------------------------------------------------------------------------

// Untyped bits: each instruction says what it reads them as. Narrow results are extended by their
// own signedness, wide operands are cut.
template <size_t BYTES>
struct Register {
    using Bits = Word<BYTES>;
    Bits bits = 0;

    Register() = default;
    // What C++ passes in: integers keep their value, all else its bits.
    template <class T>
    explicit Register(T value) {
        if constexpr (std::is_integral<T>::value || std::is_enum<T>::value) {
            static_assert(sizeof(T) <= BYTES, "an asm operand is wider than its constraint says");
            bits = (Bits)value;
        } else {
            static_assert(sizeof(T) == BYTES, "an asm operand is not of its constraint's size");
            bits = punned<Bits>(value);
        }
    }
    template <class T>
    operator T() const {
        if constexpr (std::is_integral<T>::value) return (T)bits;
        else return low<T>();
    }
    template <class T>
    Register& operator=(const T& value) {
        if constexpr (std::is_integral<T>::value) bits = (Bits)value;
        else bits = (Bits)punned<Word<sizeof(T)>>(value);
        return *this;
    }

private:
    template <class T>
    T low() const {
        static_assert(sizeof(T) <= BYTES, "a register narrower than what is read from it");
        return punned<T>((Word<sizeof(T)>)bits);
    }
};

// An operand as a T, where nothing else says which type is meant.
template <class T>
static inline T as(T value) { return value; }

// What C++ gets out; T is the type of the lvalue.
template <class T, size_t BYTES>
static inline std::remove_reference_t<T> result(const Register<BYTES>& r) {
    using Plain = std::remove_cv_t<std::remove_reference_t<T>>;
    static_assert(sizeof(Plain) == BYTES, "an asm output is not of its constraint's size");
    return punned<Plain>(r.bits);
}

template <class T>
struct Pair {  // f16x2 and the like
    T lo, hi;
};
template <class T>
constexpr bool paired = false;
template <class T>
constexpr bool paired<Pair<T>> = true;
template <class T>
constexpr bool narrow_float = false;
template <class F>
constexpr bool narrow_float<narrow::Number<F>> = true;
template <class T>
constexpr bool floating = std::is_floating_point<T>::value || narrow_float<T>;

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
constexpr int width = 8 * sizeof(T);

// A float immediate is written as its bits.
template <class T>
static inline T literal(Word<sizeof(T)> bits) { return punned<T>(bits); }

// ---- modifiers ---------------------------------------------------------------------------

// .ftz: subnormals become zeros of their sign.
template <class T>
static inline T flush(T x) {
    if constexpr (paired<T>) {
        return {flush(x.lo), flush(x.hi)};
    } else if constexpr (narrow_float<T>) {
        using F = typename T::Format;
        if (!(x.held & F::infinity)) x.held &= F::sign;
        return x;
    } else {
        return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T(0), x) : x;
    }
}
// .sat: into [0, 1]; a NaN becomes 0.
template <class T>
static inline T saturate(T x) {
    if constexpr (paired<T>) return {saturate(x.lo), saturate(x.hi)};
    else if constexpr (narrow_float<T>) return T((double)saturate((float)x));
    else return x > T(0) ? (x < T(1) ? x : T(1)) : T(0);
}
// .relu: nothing below 0; a NaN stays one.
template <class T>
static inline T relu(T x) {
    if constexpr (paired<T>) return {relu(x.lo), relu(x.hi)};
    else if constexpr (narrow_float<T>) return T((double)relu((float)x));
    else return x < T(0) || x == T(0) ? T(0) : x;
}

// ---- sums and products -------------------------------------------------------------------

// Sums and products of narrow types are exact in float64; one rounding is left.
#define SIMT_PTX_ROUNDED(NAME, OP)                                                             \
    template <class T, Round R = Round::nearest>                                               \
    static inline T NAME(T a, T b) {                                                           \
        if constexpr (paired<T>) return {NAME(a.lo, b.lo), NAME(a.hi, b.hi)};                  \
        else if constexpr (narrow_float<T>) return T((double)(float)a OP (double)(float)b);    \
        else if constexpr (floating<T>)                                                        \
            return numbers::arithmetic<T>(R, a, b, T(0), [](T x, T y, T) { return x OP y; });  \
        else return (T)(Unsigned<T>)((uint64_t)a OP (uint64_t)b);                              \
    }
SIMT_PTX_ROUNDED(add, +)
SIMT_PTX_ROUNDED(sub, -)
SIMT_PTX_ROUNDED(mul, *)
#undef SIMT_PTX_ROUNDED

// The sum in float64, its last bit set where rounding took something: a second rounding to fewer
// bits then comes out as if there had been one.
static inline double odd_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    const double rest = (a - (sum - part)) + (b - part);
    if (rest == 0 || sum - sum != 0) return sum;
    const uint64_t bits = punned<uint64_t>(sum);
    if (bits & 1) return sum;
    return punned<double>((rest > 0) == (sum > 0) ? bits | 1 : bits - 1);
}

template <class T, Round R = Round::nearest>
static inline T fma(T a, T b, T c) {
    if constexpr (paired<T>) return {fma(a.lo, b.lo, c.lo), fma(a.hi, b.hi, c.hi)};
    else if constexpr (narrow_float<T>)
        return T(odd_sum((double)(float)a * (double)(float)b, (double)(float)c));
    else
        return numbers::arithmetic<T>(R, a, b, c, [](T x, T y, T z) { return std::fma(x, y, z); });
}

__extension__ typedef __int128 Int128;
template <bool SIGNED, class S, class U>
using Either = std::conditional_t<SIGNED, S, U>;
template <class T, bool SIGNED = std::is_signed<T>::value>
using Doubled = std::conditional_t<
    sizeof(T) == 8, Int128,
    std::conditional_t<sizeof(T) == 4, Either<SIGNED, int64_t, uint64_t>,
                       Either<SIGNED, int32_t, uint32_t>>>;

template <class T>
static inline T mul_lo(T a, T b) { return mul(a, b); }
template <class T>
static inline T mul_hi(T a, T b) {
    if constexpr (sizeof(T) == 8 && !std::is_signed<T>::value) return __umul64hi(a, b);
    else return (T)((Doubled<T>)a * b >> width<T>);
}
template <class T>
static inline Doubled<T> mul_wide(T a, T b) { return (Doubled<T>)a * b; }
static inline uint32_t mul24_lo(uint32_t a, uint32_t b) { return __umul24(a, b); }
static inline int32_t mul24_lo(int32_t a, int32_t b) { return __mul24(a, b); }

template <class T>
static inline T add_sat(T a, T b) {
    T sum;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return a < 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
}
template <class T>
static inline T sub_sat(T a, T b) {
    T rest;
    if (!__builtin_sub_overflow(a, b, &rest)) return rest;
    return a < 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
}

// .cc and addc, subc: the carry of the statement's own condition code.
template <class T>
static inline T add_carry(T a, T b, bool in, bool& out) {
    Unsigned<T> sum;
    const bool first = __builtin_add_overflow((Unsigned<T>)a, (Unsigned<T>)b, &sum);
    const bool second = __builtin_add_overflow(sum, (Unsigned<T>)in, &sum);
    out = first || second;
    return (T)sum;
}
template <class T>
static inline T sub_borrow(T a, T b, bool in, bool& out) {
    Unsigned<T> rest;
    const bool first = __builtin_sub_overflow((Unsigned<T>)a, (Unsigned<T>)b, &rest);
    const bool second = __builtin_sub_overflow(rest, (Unsigned<T>)in, &rest);
    out = first || second;
    return (T)rest;
}

// What division by zero gives is not specified; GPUs give all ones, and the dividend as remainder.
template <class T>
static inline T div(T a, T b, SIMT_AT) {
    if (SIMT_UNLIKELY(b == 0)) {
        finding(503, at, "div by zero");
        return (T)~T(0);
    }
    return std::is_signed<T>::value && b == (T)-1 ? (T)(0 - (Unsigned<T>)a) : (T)(a / b);
}
template <class T>
static inline T rem(T a, T b, SIMT_AT) {
    if (SIMT_UNLIKELY(b == 0)) {
        finding(503, at, "rem by zero");
        return a;
    }
    return std::is_signed<T>::value && b == (T)-1 ? T(0) : (T)(a % b);
}

template <class T>
static inline T neg(T a) {
    if constexpr (paired<T>) return {neg(a.lo), neg(a.hi)};
    else if constexpr (narrow_float<T>) return (a.held ^= T::Format::sign, a);
    else if constexpr (floating<T>) return -a;
    else return (T)(0 - (Unsigned<T>)a);
}
template <class T>
static inline T abs(T a) {
    if constexpr (paired<T>) return {abs(a.lo), abs(a.hi)};
    else if constexpr (narrow_float<T>) return (a.held &= T::Format::sign - 1, a);
    else if constexpr (floating<T>) return std::fabs(a);
    else return a < 0 ? neg(a) : a;
}
template <class T>
static inline T sad(T a, T b, T c) {
    const Unsigned<T> distance = a > b ? (Unsigned<T>)a - (Unsigned<T>)b
                                       : (Unsigned<T>)b - (Unsigned<T>)a;
    return (T)(distance + (Unsigned<T>)c);
}

template <class T>
static inline T nan() {
    if constexpr (narrow_float<T>) return T((double)NAN);
    else if constexpr (sizeof(T) == 4) return literal<T>(0x7fffffffu);
    else return literal<T>(0x7fffffffffffffffull);
}
// Of two zeros -0 is the smaller one. A NaN loses, or with .NaN wins.
#define SIMT_PTX_EXTREME(NAME, FIRST, NEGATIVE)                                          \
    template <class T, bool NAN_WINS = false>                                            \
    static inline T NAME(T a, T b) {                                                     \
        if constexpr (paired<T>) {                                                       \
            using One = decltype(a.lo);                                                  \
            return {NAME<One, NAN_WINS>(a.lo, b.lo), NAME<One, NAN_WINS>(a.hi, b.hi)};   \
        } else if constexpr (floating<T>) {                                              \
            const bool lost = a != a, other = b != b;                                    \
            if (lost || other) return NAN_WINS || (lost && other) ? nan<T>() : lost ? b : a; \
            if (a == b) return std::signbit((double)a) == NEGATIVE ? a : b;              \
            return a FIRST b ? a : b;                                                    \
        } else {                                                                         \
            return a FIRST b ? a : b;                                                    \
        }                                                                                \
    }
SIMT_PTX_EXTREME(min, <, true)
SIMT_PTX_EXTREME(max, >, false)
#undef SIMT_PTX_EXTREME

// ---- functions ---------------------------------------------------------------------------

template <class T, Round R = Round::nearest>
static inline T divide(T a, T b) {
    return numbers::arithmetic<T>(R, a, b, T(0), [](T x, T y, T) { return x / y; });
}
template <class T, Round R = Round::nearest>
static inline T rcp(T a) { return divide<T, R>(T(1), a); }
template <class T, Round R = Round::nearest>
static inline T sqrt(T a) {
    return numbers::arithmetic<T>(R, a, T(0), T(0), [](T x, T, T) { return std::sqrt(x); });
}
template <class T>
static inline T rsqrt(T a) {
    if constexpr (sizeof(T) == 4) return numbers::reciprocal_root(a);
    else return 1 / std::sqrt(a);
}
// The .approx forms of hardware differ in the last bits (PTX ISA); these are as good as libm's.
#define SIMT_PTX_FUNCTION(NAME, CALL)                                            \
    template <class T>                                                           \
    static inline T NAME(T a) {                                                  \
        if constexpr (paired<T>) return {NAME(a.lo), NAME(a.hi)};                \
        else if constexpr (narrow_float<T>) return T((double)std::CALL((float)a)); \
        else return std::CALL(a);                                                \
    }
SIMT_PTX_FUNCTION(ex2, exp2)
SIMT_PTX_FUNCTION(lg2, log2)
SIMT_PTX_FUNCTION(sin, sin)
SIMT_PTX_FUNCTION(cos, cos)
SIMT_PTX_FUNCTION(tanh, tanh)
#undef SIMT_PTX_FUNCTION

// The sign of a on the magnitude of b.
template <class T>
static inline T copysign(T a, T b) { return std::copysign(b, a); }

enum class Class { finite, infinite, number, notanumber, normal, subnormal };
template <class T>
static inline bool testp(Class which, T a) {
    switch (which) {
        case Class::finite: return std::isfinite(a);
        case Class::infinite: return std::isinf(a);
        case Class::number: return !std::isnan(a);
        case Class::notanumber: return std::isnan(a);
        case Class::normal: return std::isnormal(a);
        default: return std::fpclassify(a) == FP_SUBNORMAL;
    }
}

// ---- bits --------------------------------------------------------------------------------

template <class T>
static inline T bit_and(T a, T b) { return a & b; }
template <class T>
static inline T bit_or(T a, T b) { return a | b; }
template <class T>
static inline T bit_xor(T a, T b) { return a ^ b; }
template <class T>
static inline T bit_not(T a) {
    if constexpr (std::is_same<T, bool>::value) return !a;
    else return (T)~a;
}
template <class T>
static inline T cnot(T a) { return a == 0; }

// Counts of the width or more shift everything out.
template <class T>
static inline T shl(T a, uint32_t count) {
    return count < width<T> ? (T)((Unsigned<T>)a << count) : T(0);
}
template <class T>
static inline T shr(T a, uint32_t count) {
    if (count < width<T>) return (T)(a >> count);
    return std::is_signed<T>::value && a < 0 ? (T)-1 : T(0);
}

// Bit of the table at the number that the three bits make, a's the highest.
static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (int i = 0; i < 8; ++i)
        if (table >> i & 1)
            result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}

enum class Permute { index, f4e, b4e, rc8, ecl, ecr, rc16 };
// The selector that the special modes of prmt stand for; n counts modulo 4.
static inline uint32_t permutation(Permute mode, uint32_t n) {
    static constexpr uint16_t table[7][4] = {
        {},
        {0x3210, 0x4321, 0x5432, 0x6543},
        {0x5670, 0x6701, 0x7012, 0x0123},
        {0x0000, 0x1111, 0x2222, 0x3333},
        {0x3210, 0x3211, 0x3222, 0x3333},
        {0x0000, 0x1110, 0x2210, 0x3210},
        {0x1010, 0x3232, 0x1010, 0x3232},
    };
    return mode == Permute::index ? n : table[(int)mode][n & 3];
}
// Bytes of b:a by number; bit 3 of a selector spreads the byte's sign instead.
static inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t n, Permute mode = Permute::index) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    const uint32_t selectors = permutation(mode, n);
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        const uint32_t selector = selectors >> 4 * i & 15;
        uint32_t byte = (uint32_t)(bytes >> 8 * (selector & 7)) & 0xff;
        if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}

template <class T>
static inline T bfe(T a, uint32_t from, uint32_t count) {
    from &= 0xff;
    count &= 0xff;
    const uint32_t top = from + count - 1 < width<T> ? from + count - 1 : width<T> - 1;
    const bool sign = std::is_signed<T>::value && count && (a >> top & 1);
    const T field = from < width<T> ? (T)((Unsigned<T>)a >> from) : T(0);
    const uint32_t got = from < width<T> ? (width<T> - from < count ? width<T> - from : count) : 0;
    if (got >= width<T>) return field;
    const Unsigned<T> mask = ((Unsigned<T>)1 << got) - 1;
    return (T)(sign ? (Unsigned<T>)field | ~mask : (Unsigned<T>)field & mask);
}
template <class T>
static inline T bfi(T a, T into, uint32_t from, uint32_t count) {
    from &= 0xff;
    count &= 0xff;
    if (from >= width<T>) return into;
    const T ones = count < width<T> ? ((T)1 << count) - 1 : (T)~T(0);
    const T mask = (T)(ones << from);
    return (into & ~mask) | ((T)(a << from) & mask);
}

template <class T>
static inline uint32_t popc(T a) { return (uint32_t)__builtin_popcountll(a); }
template <class T>
static inline uint32_t clz(T a) {
    return a ? (uint32_t)__builtin_clzll(a) - (64 - width<T>) : width<T>;
}
template <class T>
static inline T brev(T a) { return (T)(__brevll(a) >> (64 - width<T>)); }
// The highest bit that differs from the sign; all ones where there is none.
template <class T, bool SHIFT_AMOUNT = false>
static inline uint32_t bfind(T a) {
    const Unsigned<T> bits = std::is_signed<T>::value && a < 0 ? ~(Unsigned<T>)a : (Unsigned<T>)a;
    if (!bits) return ~0u;
    const uint32_t zeros = clz<Unsigned<T>>(bits);
    return SHIFT_AMOUNT ? zeros : width<T> - 1 - zeros;
}
static inline uint32_t fns(uint32_t mask, uint32_t base, int32_t offset) {
    return __fns(mask, base, offset);
}
static inline uint32_t shf_l(uint32_t lo, uint32_t hi, uint32_t count, bool clamp) {
    return clamp ? __funnelshift_lc(lo, hi, count) : __funnelshift_l(lo, hi, count);
}
static inline uint32_t shf_r(uint32_t lo, uint32_t hi, uint32_t count, bool clamp) {
    return clamp ? __funnelshift_rc(lo, hi, count) : __funnelshift_r(lo, hi, count);
}

// c + dot product; A and B are the types of one element of a and of a byte of b.
template <class A, class B>
static inline uint32_t dp(uint32_t a, uint32_t b, uint32_t c, int first_byte) {
    return numbers::dot<A, B>(a, b, c, first_byte);
}

// ---- comparisons -------------------------------------------------------------------------

template <class T>
static inline bool unordered(T a, T b) {
    if constexpr (floating<T>) return a != a || b != b;
    else return false;
}
// The forms with u are true for NaNs, the others (but ne) are false.
#define SIMT_PTX_COMPARE(NAME, OP)                                                        \
    template <class T>                                                                    \
    static inline bool NAME(T a, T b) { return !unordered(a, b) && a OP b; }              \
    template <class T>                                                                    \
    static inline bool NAME##u(T a, T b) { return unordered(a, b) || a OP b; }
SIMT_PTX_COMPARE(eq, ==)
SIMT_PTX_COMPARE(ne, !=)
SIMT_PTX_COMPARE(lt, <)
SIMT_PTX_COMPARE(le, <=)
SIMT_PTX_COMPARE(gt, >)
SIMT_PTX_COMPARE(ge, >=)
#undef SIMT_PTX_COMPARE
template <class T>
static inline bool num(T a, T b) { return !unordered(a, b); }
template <class T>
static inline bool is_nan(T a, T b) { return unordered(a, b); }

template <class T>
static inline T selp(T a, T b, bool p) { return p ? a : b; }
// set: true is all ones, or 1.0.
template <class T>
static inline T truth(bool p) {
    if constexpr (floating<T>) return T(p ? 1.0 : 0.0);
    else return p ? (T)~T(0) : T(0);
}

// ---- conversions -------------------------------------------------------------------------

// Integers reach narrow types through float64; what it cannot hold leaves a trace in the last bit.
template <class I>
static inline double odd_double(I value) {
    const double cut = numbers::from_integer<double>(value, Round::zero);
    if (cut == numbers::from_integer<double>(value, Round::down) &&
        cut == numbers::from_integer<double>(value, Round::up))
        return cut;
    return punned<double>(punned<uint64_t>(cut) | 1);
}

template <class D, class S, Round R = Round::nearest>
static inline D cvt(S x) {
    if constexpr (narrow_float<S>) {
        if constexpr (narrow_float<D>) return D((double)(float)x, R);
        else return cvt<D, float, R>((float)x);
    } else if constexpr (narrow_float<D>) {
        if constexpr (floating<S>) return D((double)x, R);
        else return D(odd_double(x), R);
    } else if constexpr (floating<D> && floating<S>) {
        if constexpr (sizeof(D) < sizeof(S)) return numbers::to_float(x, R);
        else return (D)x;
    } else if constexpr (floating<D>) {
        return numbers::from_integer<D>(x, R);
    } else if constexpr (floating<S>) {
        return numbers::to_integer<D>(x, R);
    } else {
        return (D)x;
    }
}
// cvt.rni and its kin between equal types: to whole numbers.
template <class T, Round R>
static inline T integral(T x) {
    if constexpr (narrow_float<T>) return T((double)numbers::rounded_to_integral((float)x, R));
    else return numbers::rounded_to_integral(x, R);
}
// cvt.sat between integers.
template <class D, class S>
static inline D clamp(S x) {
    using Limits = std::numeric_limits<D>;
    const Int128 value = x;
    if (value < (Int128)Limits::min()) return Limits::min();
    return value > (Int128)Limits::max() ? Limits::max() : (D)x;
}
// cvt.pack: a above b; 8-bit ones push the lower half of c up.
template <class D>
static inline uint32_t pack_integers(int32_t a, int32_t b, uint32_t c = 0) {
    const uint32_t hi = (Unsigned<D>)clamp<D, int32_t>(a), lo = (Unsigned<D>)clamp<D, int32_t>(b);
    return sizeof(D) == 1 ? c << 16 | hi << 8 | lo : hi << 16 | lo;
}
// The first operand becomes the upper half.
template <class D, Round R = Round::nearest>
static inline Pair<D> pack(float hi, float lo, bool satfinite = false) {
    return {D(lo, R, satfinite), D(hi, R, satfinite)};
}
template <class D, class S>
static inline Pair<D> repack(Pair<S> x, bool satfinite = false) {
    return {D((float)x.lo, Round::nearest, satfinite), D((float)x.hi, Round::nearest, satfinite)};
}
template <class D, Round R = Round::nearest>
static inline D satfinite(float x) { return D(x, R, true); }

}  // namespace ptx
}  // namespace simt
