// CUDA's and HIP's device mathematics beyond <cmath>: functions that C++ lacks, arithmetic with a
// rounding mode, and the fast intrinsics with the errors that CUDA documents for them.
#pragma once
#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <math.h>    // sin, isnan, abs … with their float overloads in the global namespace
#include <stdlib.h>

#include "integer.h"

// C libraries reserve or have some of these names (glibc: __expf, from 2.41 sinpi, from 2.42
// rsqrt); a definition with the same linkage agrees with each of their declarations.
#define SIMT_C_MATH extern "C" __attribute__((visibility("hidden"))) inline

// ---- functions that C++ lacks ------------------------------------------------------------

namespace simt {
namespace numbers {

constexpr double pi = 3.14159265358979323846;
constexpr double sqrt_pi = 1.77245385090551602730;
constexpr double sqrt_two = 1.41421356237309504880;

#ifdef SIMT_RING
static inline double sin_of_pi(double x, int quarter) {
    return quarter ? std::cos(pi * x) : std::sin(pi * x);
}
#else
// Sine (quarter 0) or cosine (quarter 1) of pi times x; the reduction is exact.
static inline double sin_of_pi(double x, int quarter) {
    if (!std::isfinite(x)) return std::numeric_limits<double>::quiet_NaN();
    int quotient;
    const double rest = std::remquo(x, 0.5, &quotient);  // |rest| <= 1/4
    const int turn = (quotient + quarter) & 3;
    if (rest == 0 && !(turn & 1)) return quarter ? 0.0 : std::copysign(0.0, x);
    const double value = turn & 1 ? std::cos(pi * rest) : std::sin(pi * rest);
    return turn & 2 ? -value : value;
}

#endif

// exp(x * x) * erfc(x). Above 10 the asymptotic series reaches full precision before it diverges
// (Abramowitz and Stegun 7.1.23).
static inline double scaled_erfc(double x) {
    if (x < -27) return INFINITY;
    if (x < 10) {
        const double square = x * x;
        const double rest = std::fma(x, x, -square);  // exp magnifies the rounding of the square
        return std::exp(square) * (1 + rest) * std::erfc(x);
    }
    const double step = -0.5 / x / x;
    double term = 1, sum = 1;
    for (int k = 1; k < 40 && std::fabs(term) > 1e-17; k += 2) sum += term *= k * step;
    return sum / x / sqrt_pi;
}

// erfc(y) = z for 0 < z <= 1: Newton's method on log(erfc(y)), which is concave and nearly
// quadratic, so that it converges from the left at every z.
static inline double inverse_erfc_positive(double z) {
    const double goal = std::log(z);
    double y = z > 0.5 ? sqrt_pi / 2 * (1 - z) : std::sqrt(std::log(2) - goal) - 0.5;
    for (int i = 0; i < 12; ++i) {
        const double scaled = scaled_erfc(y);
        const double step = (std::log(scaled) - y * y - goal) * scaled * sqrt_pi / 2;
        y += step;
        if (std::fabs(step) <= 1e-16 * y) break;
    }
    return y;
}

static inline double inverse_erf(double x) {
    const double size = std::fabs(x);
    if (!(size < 1)) return size == 1 ? std::copysign(INFINITY, x) : NAN;
    if (size > 0.5) return std::copysign(inverse_erfc_positive(1 - size), x);
    double y = sqrt_pi / 2 * x;
    for (int i = 0; i < 12; ++i) {
        const double step = (x - std::erf(y)) * std::exp(y * y) * sqrt_pi / 2;
        y += step;
        if (std::fabs(step) <= 1e-16 * std::fabs(y)) break;
    }
    return y;
}

static inline double inverse_erfc(double z) {
    if (!(z >= 0 && z <= 2)) return NAN;
    if (z == 0 || z == 2) return z == 0 ? INFINITY : -INFINITY;
    if (z >= 0.5 && z <= 1.5) return inverse_erf(1 - z);
    return z < 1 ? inverse_erfc_positive(z) : -inverse_erfc_positive(2 - z);
}

// erfc(-x / sqrt(2)) / 2, with what rounding took from the argument put back to first order.
static inline double normal_cdf(double x) {
    if (!std::isfinite(x)) return std::isnan(x) ? x : x > 0;
    constexpr double root = 0.70710678118654752440, root_rest = -4.8336466567264567e-17;
    const double y = -x * root;
    const double rest = std::fma(-x, root, -y) - x * root_rest;
    return 0.5 * (std::erfc(y) - 2 / sqrt_pi * std::exp(-y * y) * rest);
}

// Modified Bessel function of the first kind, order 0 or 1, of x >= 0: the power series, whose
// terms are all positive, and from 30 on the asymptotic one (Abramowitz and Stegun 9.6.10, 9.7.1).
static inline double bessel_i(int order, double x) {
    if (std::isinf(x)) return x;
    long double term = 1, sum = 1;
    if (x < 30) {
        const long double quarter = (long double)x * x / 4;
        for (int k = 1; term > sum * 1e-17; ++k) sum += term *= quarter / (k * (k + order));
        return double(order ? sum * x / 2 : sum);
    }
    for (int k = 1; k < 60 && std::fabs(term) > 1e-17; ++k)
        sum += term *= -(4.0 * order * order - (2 * k - 1) * (2 * k - 1)) / (8 * k * x);
    const double half = std::exp(x / 2);  // exp(x) overflows before the quotient does
    return half / std::sqrt(2 * pi * x) * half * double(sum);
}

// One step of Newton's method on what std::cbrt, which may be a few units off, gives.
static inline double reciprocal_cbrt(double x) {
    const double y = 1 / std::cbrt(x);
    if (!std::isfinite(y) || y == 0) return y;
    return y + y * std::fma(-(x * y), y * y, 1.0) / 3;
}

#ifdef SIMT_RING
template <class F>
static inline F norm(int count, const F* p) {
    F sum = 0;
    for (int i = 0; i < count; ++i) sum += p[i] * p[i];
    return std::sqrt(sum);
}
#else
// Euclidean norm; an infinity wins over a NaN, as in std::hypot.
static inline double norm(int count, const double* p) {
    double largest = 0, sum = 0;
    bool nan = false;
    for (int i = 0; i < count; ++i) {
        nan |= std::isnan(p[i]);
        largest = std::fmax(largest, std::fabs(p[i]));
    }
    if (std::isinf(largest)) return largest;
    if (nan) return NAN;
    if (largest == 0) return 0;
    const int exponent = std::ilogb(largest);
    for (int i = 0; i < count; ++i) {
        const double scaled = std::scalbn(p[i], -exponent);
        sum = std::fma(scaled, scaled, sum);
    }
    return std::scalbn(std::sqrt(sum), exponent);
}
static inline double norm(int count, const float* p) {
    double sum = 0;
    bool infinite = false;
    for (int i = 0; i < count; ++i) {
        infinite |= std::isinf(p[i]);
        sum += double(p[i]) * p[i];
    }
    return infinite ? INFINITY : std::sqrt(sum);
}
#endif

}  // namespace numbers
}  // namespace simt

// NAME for double, NAMEf and an overload of NAME for float; floats are computed in double.
#define SIMT_MATH1(NAME, ...)                                                   \
    SIMT_C_MATH double NAME(double x) noexcept { return __VA_ARGS__; }          \
    SIMT_C_MATH float NAME##f(float x) noexcept { return (float)NAME((double)x); } \
    static inline float NAME(float x) noexcept { return NAME##f(x); }
SIMT_MATH1(rcbrt, simt::numbers::reciprocal_cbrt(x))
SIMT_MATH1(sinpi, simt::numbers::sin_of_pi(x, 0))
SIMT_MATH1(cospi, simt::numbers::sin_of_pi(x, 1))
SIMT_MATH1(erfinv, simt::numbers::inverse_erf(x))
SIMT_MATH1(erfcinv, simt::numbers::inverse_erfc(x))
SIMT_MATH1(erfcx, simt::numbers::scaled_erfc(x))
SIMT_MATH1(normcdf, simt::numbers::normal_cdf(x))
SIMT_MATH1(normcdfinv, -simt::numbers::sqrt_two * simt::numbers::inverse_erfc(2 * x))
SIMT_MATH1(cyl_bessel_i0, simt::numbers::bessel_i(0, std::fabs(x)))
SIMT_MATH1(cyl_bessel_i1, std::copysign(simt::numbers::bessel_i(1, std::fabs(x)), x))
#undef SIMT_MATH1

SIMT_C_MATH double rsqrt(double x) noexcept { return 1 / std::sqrt(x); }
SIMT_C_MATH float rsqrtf(float x) noexcept { return 1 / std::sqrt(x); }
static inline float rsqrt(float x) noexcept { return rsqrtf(x); }

SIMT_C_MATH void sincospi(double x, double* s, double* c) noexcept {
    *s = sinpi(x);
    *c = cospi(x);
}
SIMT_C_MATH void sincospif(float x, float* s, float* c) noexcept {
    *s = sinpif(x);
    *c = cospif(x);
}
static inline void sincospi(float x, float* s, float* c) noexcept { sincospif(x, s, c); }

#if !defined(__GLIBC__) && !defined(_GNU_SOURCE)
SIMT_C_MATH double exp10(double x) noexcept { return std::pow(10.0, x); }
SIMT_C_MATH float exp10f(float x) noexcept { return (float)std::pow(10.0, (double)x); }
SIMT_C_MATH void sincos(double x, double* s, double* c) noexcept {
    *s = std::sin(x);
    *c = std::cos(x);
}
SIMT_C_MATH void sincosf(float x, float* s, float* c) noexcept {
    *s = std::sin(x);
    *c = std::cos(x);
}
#endif
static inline float exp10(float x) noexcept { return exp10f(x); }
static inline void sincos(float x, float* s, float* c) noexcept { sincosf(x, s, c); }

static inline float j0(float x) noexcept { return j0f(x); }
static inline float j1(float x) noexcept { return j1f(x); }
static inline float jn(int n, float x) noexcept { return jnf(n, x); }
static inline float y0(float x) noexcept { return y0f(x); }
static inline float y1(float x) noexcept { return y1f(x); }
static inline float yn(int n, float x) noexcept { return ynf(n, x); }

static inline double norm(int dim, const double* p) noexcept { return simt::numbers::norm(dim, p); }
static inline float normf(int dim, const float* p) noexcept {
    return (float)simt::numbers::norm(dim, p);
}
static inline double rnorm(int dim, const double* p) noexcept { return 1 / norm(dim, p); }
static inline float rnormf(int dim, const float* p) noexcept {
    return (float)(1 / simt::numbers::norm(dim, p));
}
static inline double norm3d(double a, double b, double c) noexcept {
    const double p[] = {a, b, c};
    return norm(3, p);
}
static inline double norm4d(double a, double b, double c, double d) noexcept {
    const double p[] = {a, b, c, d};
    return norm(4, p);
}
static inline float norm3df(float a, float b, float c) noexcept {
    const float p[] = {a, b, c};
    return normf(3, p);
}
static inline float norm4df(float a, float b, float c, float d) noexcept {
    const float p[] = {a, b, c, d};
    return normf(4, p);
}
static inline double rnorm3d(double a, double b, double c) noexcept { return 1 / norm3d(a, b, c); }
static inline double rnorm4d(double a, double b, double c, double d) noexcept {
    return 1 / norm4d(a, b, c, d);
}
static inline float rnorm3df(float a, float b, float c) noexcept {
    const float p[] = {a, b, c};
    return rnormf(3, p);
}
static inline float rnorm4df(float a, float b, float c, float d) noexcept {
    const float p[] = {a, b, c, d};
    return rnormf(4, p);
}
static inline double rhypot(double a, double b) noexcept { return 1 / std::hypot(a, b); }
static inline float rhypotf(float a, float b) noexcept {
    return (float)(1 / std::hypot((double)a, (double)b));
}
static inline float rhypot(float a, float b) noexcept { return rhypotf(a, b); }
static inline double fdivide(double x, double y) noexcept { return x / y; }
static inline float fdividef(float x, float y) noexcept { return x / y; }
static inline float fdivide(float x, float y) noexcept { return x / y; }
static inline double powi(double x, int n) noexcept { return std::pow(x, (double)n); }
static inline float powif(float x, int n) noexcept { return (float)std::pow((double)x, (double)n); }

// ---- minimum and maximum -----------------------------------------------------------------

static inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
static inline long long llmin(long long a, long long b) { return a < b ? a : b; }
static inline long long llmax(long long a, long long b) { return a > b ? a : b; }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) {
    return a < b ? a : b;
}
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) {
    return a > b ? a : b;
}

namespace simt {
namespace numbers {

// A NaN loses, -0 is below +0.
template <class F>
static inline F lesser(F a, F b) {
    if (__builtin_expect(a == b, 0)) return std::signbit(a) ? a : b;
    const F result = a < b ? a : b;
    return __builtin_expect(b != b, 0) ? a : result;
}
template <class F>
static inline F greater(F a, F b) {
    if (__builtin_expect(a == b, 0)) return std::signbit(a) ? b : a;
    const F result = a > b ? a : b;
    return __builtin_expect(b != b, 0) ? a : result;
}

}  // namespace numbers
}  // namespace simt

// g++ calls the C library for these, which takes three to ten times as long.
#if !defined(__clang__)
extern "C" inline float fminf(float a, float b) noexcept { return simt::numbers::lesser(a, b); }
extern "C" inline float fmaxf(float a, float b) noexcept { return simt::numbers::greater(a, b); }
extern "C" inline double fmin(double a, double b) noexcept { return simt::numbers::lesser(a, b); }
extern "C" inline double fmax(double a, double b) noexcept { return simt::numbers::greater(a, b); }
#endif

// CUDA's overloads: mixed signedness is unsigned, mixed precision is double.
#define SIMT_MIN_MAX(R, A, B, MIN, MAX)                                \
    static inline R min(A a, B b) { return MIN((R)a, (R)b); }          \
    static inline R max(A a, B b) { return MAX((R)a, (R)b); }
#define SIMT_MIN_MAX_INTEGER(S, U)                                                         \
    SIMT_MIN_MAX(S, S, S, simt::numbers::smaller<S>, simt::numbers::larger<S>)             \
    SIMT_MIN_MAX(U, U, U, simt::numbers::smaller<U>, simt::numbers::larger<U>)             \
    SIMT_MIN_MAX(U, S, U, simt::numbers::smaller<U>, simt::numbers::larger<U>)             \
    SIMT_MIN_MAX(U, U, S, simt::numbers::smaller<U>, simt::numbers::larger<U>)
SIMT_MIN_MAX_INTEGER(int, unsigned)
SIMT_MIN_MAX_INTEGER(long, unsigned long)
SIMT_MIN_MAX_INTEGER(long long, unsigned long long)
SIMT_MIN_MAX(float, float, float, simt::numbers::lesser<float>, simt::numbers::greater<float>)
SIMT_MIN_MAX(double, double, double, simt::numbers::lesser<double>, simt::numbers::greater<double>)
SIMT_MIN_MAX(double, float, double, simt::numbers::lesser<double>, simt::numbers::greater<double>)
SIMT_MIN_MAX(double, double, float, simt::numbers::lesser<double>, simt::numbers::greater<double>)
#undef SIMT_MIN_MAX_INTEGER
#undef SIMT_MIN_MAX

// ---- arithmetic with a rounding mode -----------------------------------------------------

namespace simt {
namespace numbers {

// Keeps the compiler from fusing x into a multiply-add, which _rn promises and GNU modes break.
template <class F>
static inline F unfused(F x) {
#if !defined(__STRICT_ANSI__) && !defined(__clang__)
#if defined(__x86_64__)
    asm("" : "+x"(x));
#elif defined(__aarch64__)
    asm("" : "+w"(x));
#endif
#endif
    return x;
}

// The volatile copies hold the operation between the two changes of the rounding mode.
template <class F, class Operation>
static inline F in_mode(Round mode, F a, F b, F c, Operation operation) {
    constexpr int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    volatile F x = a, y = b, z = c;
    const int before = std::fegetround();
    std::fesetround(modes[(int)mode]);
    volatile F result = operation(F(x), F(y), F(z));
    std::fesetround(before);
    return result;
}
template <class F, class Operation>
static inline F arithmetic(Round mode, F a, F b, F c, Operation operation) {
    return mode == Round::nearest ? unfused(operation(a, b, c)) : in_mode(mode, a, b, c, operation);
}

// Correctly rounded, checked for every float: the double's error is far below what separates a
// reciprocal root from the middle of two floats.
static inline float reciprocal_root(float x) { return (float)(1 / std::sqrt((double)x)); }

}  // namespace numbers
}  // namespace simt

#define SIMT_ROUNDED(SUFFIX, MODE, F, NAME, PARAMETERS, A, B, C, ...)                      \
    static inline F NAME##_##SUFFIX PARAMETERS {                                           \
        return simt::numbers::arithmetic<F>(simt::numbers::Round::MODE, A, B, C,           \
                                            [](F a, F b, F c) -> F { return __VA_ARGS__; }); \
    }
#define SIMT_ROUNDED1(F, NAME, ...) \
    SIMT_EACH_ROUNDING(SIMT_ROUNDED, F, NAME, (F x), x, F(0), F(0), ((void)b, (void)c, __VA_ARGS__))
#define SIMT_ROUNDED2(F, NAME, ...) \
    SIMT_EACH_ROUNDING(SIMT_ROUNDED, F, NAME, (F x, F y), x, y, F(0), ((void)c, __VA_ARGS__))
#define SIMT_ROUNDED3(F, NAME, ...) \
    SIMT_EACH_ROUNDING(SIMT_ROUNDED, F, NAME, (F x, F y, F z), x, y, z, __VA_ARGS__)
SIMT_ROUNDED2(float, __fadd, a + b)
SIMT_ROUNDED2(float, __fsub, a - b)
SIMT_ROUNDED2(float, __fmul, a * b)
SIMT_ROUNDED2(float, __fdiv, a / b)
SIMT_ROUNDED1(float, __frcp, 1 / a)
SIMT_ROUNDED1(float, __fsqrt, std::sqrt(a))
SIMT_ROUNDED3(float, __fmaf, std::fma(a, b, c))
SIMT_ROUNDED3(float, __fmaf_ieee, std::fma(a, b, c))
SIMT_ROUNDED2(double, __dadd, a + b)
SIMT_ROUNDED2(double, __dsub, a - b)
SIMT_ROUNDED2(double, __dmul, a * b)
SIMT_ROUNDED2(double, __ddiv, a / b)
SIMT_ROUNDED1(double, __drcp, 1 / a)
SIMT_ROUNDED1(double, __dsqrt, std::sqrt(a))
SIMT_ROUNDED3(double, __fma, std::fma(a, b, c))
#undef SIMT_ROUNDED
#undef SIMT_ROUNDED1
#undef SIMT_ROUNDED2
#undef SIMT_ROUNDED3

// Pairs of floats at once (compute capability 10).
#define SIMT_ROUNDED_PAIR(SUFFIX, MODE, F)                                                 \
    static inline F __fadd2_##SUFFIX(F a, F b) {                                           \
        return F{__fadd_##SUFFIX(a.x, b.x), __fadd_##SUFFIX(a.y, b.y)};                    \
    }                                                                                      \
    static inline F __fmul2_##SUFFIX(F a, F b) {                                           \
        return F{__fmul_##SUFFIX(a.x, b.x), __fmul_##SUFFIX(a.y, b.y)};                    \
    }                                                                                      \
    static inline F __ffma2_##SUFFIX(F a, F b, F c) {                                      \
        return F{__fmaf_##SUFFIX(a.x, b.x, c.x), __fmaf_##SUFFIX(a.y, b.y, c.y)};          \
    }
SIMT_EACH_ROUNDING(SIMT_ROUNDED_PAIR, float2)
#undef SIMT_ROUNDED_PAIR

static inline float __frsqrt_rn(float x) { return simt::numbers::reciprocal_root(x); }

// ---- fast intrinsics ---------------------------------------------------------------------

// Each is the formula that CUDA documents ("Intrinsic Functions" of the CUDA C++ Programming
// Guide's mathematical functions), in float, over the operations of the special function unit,
// whose errors the PTX ISA bounds. Where an error is absolute, so is ours: a result near 0 has few
// good digits, as on the GPU. How it comes about was measured on an H200.
namespace simt {
namespace numbers {

constexpr float log2_e = 1.442695041f, log2_10 = 3.321928094f;
constexpr float log_2 = 0.693147181f, log10_2 = 0.301029996f;

static inline float ex2_approx(float x) { return std::exp2(x); }
static inline float rcp_approx(float x) { return 1 / x; }

#ifdef SIMT_RING
// What the intrinsics stand for, without their errors.
static inline float lg2_approx(float x) { return std::log2(x); }
static inline float sin_approx(float x) { return std::sin(x); }
static inline float cos_approx(float x) { return std::cos(x); }
static inline float tanh_approx(float x) { return std::tanh(x); }
#else

// Around 1 the unit's result has an error of up to 2^-22.1 whatever its size; ours is a multiple
// of 2^-23.
static inline float lg2_approx(float x) {
    const float result = std::log2(x);
    return std::fabs(result) <= 1 ? std::rint(result * 0x1p23f) * 0x1p-23f : result;
}

// The unit takes an angle as 25 bits of a turn: of x / 2pi as a float, rounding always towards
// zero. Two bits are the quadrant; in every other one the rest is complemented, not negated, so
// that sine and cosine are exactly 0 just before the angles where they should be.
static inline float sin_approx(float x, unsigned quarters) {
    const double product = std::fabs(double(x)) * 0.15915494309189535f;
    if (!(product < std::numeric_limits<double>::infinity())) return NAN;
    const double turns = punned<double>(punned<uint64_t>(product) & ~uint64_t(0x1fffffff));
    const unsigned angle = unsigned((turns - std::trunc(turns)) * 0x1p25) + (quarters << 23);
    const unsigned within = (angle >> 23 & 1 ? ~angle : angle) & 0x7fffff;
    const float value = std::sin(float(within) * float(2 * pi * 0x1p-25));
    return angle >> 24 & 1 ? -value : value;
}
static inline float sin_approx(float x) {
    const float value = sin_approx(x, 0);
    return std::signbit(x) ? -value : value;
}
static inline float cos_approx(float x) { return sin_approx(x, 1); }

// PTX allows a relative error of 2^-11; an H200 has 2^-16.5 and we have 2^-17.
static inline float tanh_approx(float x) {
    const float result = std::tanh(x);
    if (std::fabs(result) < 0x1p-126f || result != result) return result;
    return punned<float>((punned<uint32_t>(result) + 0x40) & ~0x7fu);
}
#endif

}  // namespace numbers
}  // namespace simt

#ifdef SIMT_RING
SIMT_C_MATH float __expf(float x) noexcept { return std::exp(x); }
SIMT_C_MATH float __exp10f(float x) noexcept { return exp10f(x); }
SIMT_C_MATH float __log2f(float x) noexcept { return std::log2(x); }
SIMT_C_MATH float __logf(float x) noexcept { return std::log(x); }
SIMT_C_MATH float __log10f(float x) noexcept { return std::log10(x); }
SIMT_C_MATH float __powf(float x, float y) noexcept { return std::pow(x, y); }
#else
SIMT_C_MATH float __expf(float x) noexcept {
    return simt::numbers::ex2_approx(x * simt::numbers::log2_e);
}
SIMT_C_MATH float __exp10f(float x) noexcept {
    return simt::numbers::ex2_approx(x * simt::numbers::log2_10);
}
SIMT_C_MATH float __log2f(float x) noexcept { return simt::numbers::lg2_approx(x); }
SIMT_C_MATH float __logf(float x) noexcept {
    return simt::numbers::lg2_approx(x) * simt::numbers::log_2;
}
SIMT_C_MATH float __log10f(float x) noexcept {
    return simt::numbers::lg2_approx(x) * simt::numbers::log10_2;
}
SIMT_C_MATH float __powf(float x, float y) noexcept {
    return simt::numbers::ex2_approx(y * simt::numbers::lg2_approx(x));
}
#endif
SIMT_C_MATH float __sinf(float x) noexcept { return simt::numbers::sin_approx(x); }
SIMT_C_MATH float __cosf(float x) noexcept { return simt::numbers::cos_approx(x); }
SIMT_C_MATH void __sincosf(float x, float* s, float* c) noexcept {
    *s = __sinf(x);
    *c = __cosf(x);
}
SIMT_C_MATH float __tanf(float x) noexcept {
    return __sinf(x) * simt::numbers::rcp_approx(__cosf(x));
}
SIMT_C_MATH float __tanhf(float x) noexcept { return simt::numbers::tanh_approx(x); }
// The reciprocal of a y beyond 2^126 would be subnormal and is 0; an infinite x gives NaN there.
SIMT_C_MATH float __fdividef(float x, float y) noexcept {
#ifdef SIMT_RING
    return x / y;
#endif
    const float size = std::fabs(y);
    if (size > 0x1p126f) return x * std::copysign(0.0f, y);
    const float scale = size < 0x1p-126f ? 0x1p24f : 1.0f;  // lest the reciprocal overflow
    return x * scale * simt::numbers::rcp_approx(y * scale);
}
SIMT_C_MATH float __saturatef(float x) noexcept { return !(x > 0) ? 0 : x > 1 ? 1 : x; }

// ---- AMD's device library ----------------------------------------------------------------

// The functions of OCML under their own names, for float and double. Native ones are as fast and
// as coarse as CUDA's fast intrinsics.
#define SIMT_OCML(NAME, F, SUFFIX, FUNCTION) \
    static inline F __ocml_##NAME##_##SUFFIX(F x) { return FUNCTION(x); }
#define SIMT_OCML1(NAME, FUNCTION)          \
    SIMT_OCML(NAME, float, f32, FUNCTION)   \
    SIMT_OCML(NAME, double, f64, FUNCTION)
#define SIMT_OCML_STD(NAME) SIMT_OCML1(NAME, std::NAME)
SIMT_OCML_STD(acos)
SIMT_OCML_STD(acosh)
SIMT_OCML_STD(asin)
SIMT_OCML_STD(asinh)
SIMT_OCML_STD(atan)
SIMT_OCML_STD(atanh)
SIMT_OCML_STD(cbrt)
SIMT_OCML_STD(ceil)
SIMT_OCML_STD(cos)
SIMT_OCML_STD(cosh)
SIMT_OCML_STD(erf)
SIMT_OCML_STD(erfc)
SIMT_OCML_STD(exp)
SIMT_OCML_STD(exp2)
SIMT_OCML_STD(expm1)
SIMT_OCML_STD(fabs)
SIMT_OCML_STD(floor)
SIMT_OCML_STD(lgamma)
SIMT_OCML_STD(log)
SIMT_OCML_STD(log10)
SIMT_OCML_STD(log1p)
SIMT_OCML_STD(log2)
SIMT_OCML_STD(logb)
SIMT_OCML_STD(nearbyint)
SIMT_OCML_STD(rint)
SIMT_OCML_STD(round)
SIMT_OCML_STD(sin)
SIMT_OCML_STD(sinh)
SIMT_OCML_STD(sqrt)
SIMT_OCML_STD(tan)
SIMT_OCML_STD(tanh)
SIMT_OCML_STD(tgamma)
SIMT_OCML_STD(trunc)
SIMT_OCML1(cospi, ::cospi)
SIMT_OCML1(erfcinv, ::erfcinv)
SIMT_OCML1(erfcx, ::erfcx)
SIMT_OCML1(erfinv, ::erfinv)
SIMT_OCML1(exp10, ::exp10)
SIMT_OCML1(i0, ::cyl_bessel_i0)
SIMT_OCML1(i1, ::cyl_bessel_i1)
SIMT_OCML1(j0, ::j0)
SIMT_OCML1(j1, ::j1)
SIMT_OCML1(ncdf, ::normcdf)
SIMT_OCML1(ncdfinv, ::normcdfinv)
SIMT_OCML1(rcbrt, ::rcbrt)
SIMT_OCML1(rsqrt, ::rsqrt)
SIMT_OCML1(sinpi, ::sinpi)
SIMT_OCML1(y0, ::y0)
SIMT_OCML1(y1, ::y1)
SIMT_OCML(native_cos, float, f32, __cosf)
SIMT_OCML(native_exp, float, f32, __expf)
SIMT_OCML(native_exp10, float, f32, __exp10f)
SIMT_OCML(native_exp2, float, f32, simt::numbers::ex2_approx)
SIMT_OCML(native_log, float, f32, __logf)
SIMT_OCML(native_log10, float, f32, __log10f)
SIMT_OCML(native_log2, float, f32, __log2f)
SIMT_OCML(native_recip, float, f32, simt::numbers::rcp_approx)
SIMT_OCML(native_rsqrt, float, f32, ::rsqrt)
SIMT_OCML(native_sin, float, f32, __sinf)
SIMT_OCML(native_sqrt, float, f32, std::sqrt)
#undef SIMT_OCML_STD
#undef SIMT_OCML1
#undef SIMT_OCML

#define SIMT_OCML_OF(F, SUFFIX, PREFIX, FMA, I)                                            \
    static inline F __ocml_atan2_##SUFFIX(F y, F x) { return std::atan2(y, x); }           \
    static inline F __ocml_copysign_##SUFFIX(F x, F y) { return std::copysign(x, y); }     \
    static inline F __ocml_fdim_##SUFFIX(F x, F y) { return std::fdim(x, y); }             \
    static inline F __ocml_fma_##SUFFIX(F x, F y, F z) { return std::fma(x, y, z); }       \
    static inline F __ocml_fmax_##SUFFIX(F x, F y) { return simt::numbers::greater(x, y); } \
    static inline F __ocml_fmin_##SUFFIX(F x, F y) { return simt::numbers::lesser(x, y); } \
    static inline F __ocml_fmod_##SUFFIX(F x, F y) { return std::fmod(x, y); }             \
    static inline F __ocml_hypot_##SUFFIX(F x, F y) { return std::hypot(x, y); }           \
    static inline F __ocml_nextafter_##SUFFIX(F x, F y) { return std::nextafter(x, y); }   \
    static inline F __ocml_pow_##SUFFIX(F x, F y) { return std::pow(x, y); }               \
    static inline F __ocml_pown_##SUFFIX(F x, int n) { return (F)std::pow((double)x, n); } \
    static inline F __ocml_remainder_##SUFFIX(F x, F y) { return std::remainder(x, y); }   \
    static inline F __ocml_rhypot_##SUFFIX(F x, F y) { return ::rhypot(x, y); }            \
    static inline F __ocml_ldexp_##SUFFIX(F x, int n) { return std::ldexp(x, n); }         \
    static inline F __ocml_scalbn_##SUFFIX(F x, int n) { return std::scalbn(x, n); }       \
    static inline F __ocml_scalb_##SUFFIX(F x, F n) { return x * std::exp2(n); }           \
    static inline int __ocml_ilogb_##SUFFIX(F x) { return std::ilogb(x); }                 \
    static inline int __ocml_isfinite_##SUFFIX(F x) { return std::isfinite(x); }           \
    static inline int __ocml_isinf_##SUFFIX(F x) { return std::isinf(x); }                 \
    static inline int __ocml_isnan_##SUFFIX(F x) { return std::isnan(x); }                 \
    static inline int __ocml_signbit_##SUFFIX(F x) { return std::signbit(x); }             \
    static inline F __ocml_frexp_##SUFFIX(F x, int* n) { return std::frexp(x, n); }        \
    static inline F __ocml_modf_##SUFFIX(F x, F* whole) { return std::modf(x, whole); }    \
    static inline F __ocml_remquo_##SUFFIX(F x, F y, int* n) { return std::remquo(x, y, n); } \
    static inline F __ocml_len3_##SUFFIX(F x, F y, F z) { return norm3d##I(x, y, z); }     \
    static inline F __ocml_len4_##SUFFIX(F x, F y, F z, F w) { return norm4d##I(x, y, z, w); } \
    static inline F __ocml_rlen3_##SUFFIX(F x, F y, F z) { return rnorm3d##I(x, y, z); }   \
    static inline F __ocml_rlen4_##SUFFIX(F x, F y, F z, F w) {                            \
        return rnorm4d##I(x, y, z, w);                                                     \
    }                                                                                      \
    static inline F __ocml_sincos_##SUFFIX(F x, F* cosine) {                               \
        *cosine = std::cos(x);                                                             \
        return std::sin(x);                                                                \
    }                                                                                      \
    static inline F __ocml_sincospi_##SUFFIX(F x, F* cosine) {                             \
        *cosine = ::cospi(x);                                                              \
        return ::sinpi(x);                                                                 \
    }                                                                                      \
    SIMT_OCML_ROUNDED(F, SUFFIX, PREFIX, FMA, rte, rn)                                     \
    SIMT_OCML_ROUNDED(F, SUFFIX, PREFIX, FMA, rtz, rz)                                     \
    SIMT_OCML_ROUNDED(F, SUFFIX, PREFIX, FMA, rtn, rd)                                     \
    SIMT_OCML_ROUNDED(F, SUFFIX, PREFIX, FMA, rtp, ru)
#define SIMT_OCML_ROUNDED(F, SUFFIX, PREFIX, FMA, THEIRS, OURS)                            \
    static inline F __ocml_add_##THEIRS##_##SUFFIX(F x, F y) { return PREFIX##add_##OURS(x, y); } \
    static inline F __ocml_sub_##THEIRS##_##SUFFIX(F x, F y) { return PREFIX##sub_##OURS(x, y); } \
    static inline F __ocml_mul_##THEIRS##_##SUFFIX(F x, F y) { return PREFIX##mul_##OURS(x, y); } \
    static inline F __ocml_div_##THEIRS##_##SUFFIX(F x, F y) { return PREFIX##div_##OURS(x, y); } \
    static inline F __ocml_sqrt_##THEIRS##_##SUFFIX(F x) { return PREFIX##sqrt_##OURS(x); }       \
    static inline F __ocml_fma_##THEIRS##_##SUFFIX(F x, F y, F z) { return FMA##_##OURS(x, y, z); }
SIMT_OCML_OF(float, f32, __f, __fmaf, f)
SIMT_OCML_OF(double, f64, __d, __fma, )
#undef SIMT_OCML_OF
#undef SIMT_OCML_ROUNDED
