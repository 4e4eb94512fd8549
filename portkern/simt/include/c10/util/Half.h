// float16 and bfloat16 as PyTorch has them: they convert to float and back, and calculate in it.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>

#include "../../simt/bfloat16.h"
#include "../../simt/half.h"
#include "../../simt/narrow.h"
#include "../macros/Macros.h"

namespace c10 {
namespace detail {

// Self is the type that derives from this, Format how its 16 bits are read, Device CUDA's type.
template <class Self, class Format, class Device>
struct Float16 {
    uint16_t x;
    struct from_bits_t {};
    static constexpr from_bits_t from_bits() { return {}; }

    Float16() = default;
    constexpr Float16(unsigned short bits, from_bits_t) : x(bits) {}
    Float16(float value) : x(simt::narrow::round<Format>(value)) {}
    Float16(const Device& value) { __builtin_memcpy(&x, &value, 2); }
    operator float() const { return simt::narrow::read<Format>(x); }
    operator Device() const {
        Device value;
        __builtin_memcpy((void*)&value, &x, 2);
        return value;
    }

    Self operator-() const { return Self(-(float)*this); }
    Self& operator+=(const Self& b) { return set((float)*this + (float)b); }
    Self& operator-=(const Self& b) { return set((float)*this - (float)b); }
    Self& operator*=(const Self& b) { return set((float)*this * (float)b); }
    Self& operator/=(const Self& b) { return set((float)*this / (float)b); }

  private:
    Self& set(float value) {
        x = simt::narrow::round<Format>(value);
        return static_cast<Self&>(*this);
    }
};

template <class T>
struct IsFloat16 : std::false_type {};
template <class T, class Result>
using If16 = std::enable_if_t<IsFloat16<T>::value, Result>;
template <class T, class I, class Result>
using If16AndInteger =
    std::enable_if_t<IsFloat16<T>::value && std::is_integral<I>::value, Result>;

}  // namespace detail

struct alignas(2) Half : detail::Float16<Half, simt::narrow::Half, __half> {
    using Float16::Float16;
    Half() = default;
};
struct alignas(2) BFloat16 : detail::Float16<BFloat16, simt::narrow::Bfloat, __nv_bfloat16> {
    using Float16::Float16;
    BFloat16() = default;
};
namespace detail {
template <> struct IsFloat16<Half> : std::true_type {};
template <> struct IsFloat16<BFloat16> : std::true_type {};
}  // namespace detail

// With its like or an integer the result is the 16-bit type; with float or double it is theirs.
#define C10_SIMT_OPERATOR(op)                                                                     \
    template <class T>                                                                            \
    inline detail::If16<T, T> operator op(const T& a, const T& b) {                               \
        return T((float)a op(float) b);                                                           \
    }                                                                                             \
    template <class T>                                                                            \
    inline detail::If16<T, float> operator op(const T& a, float b) { return (float)a op b; }      \
    template <class T>                                                                            \
    inline detail::If16<T, float> operator op(float a, const T& b) { return a op(float) b; }      \
    template <class T>                                                                            \
    inline detail::If16<T, double> operator op(const T& a, double b) {                            \
        return (double)(float)a op b;                                                             \
    }                                                                                             \
    template <class T>                                                                            \
    inline detail::If16<T, double> operator op(double a, const T& b) {                            \
        return a op(double)(float) b;                                                             \
    }                                                                                             \
    template <class T, class I>                                                                   \
    inline detail::If16AndInteger<T, I, T> operator op(const T& a, I b) {                         \
        return a op T((float)b);                                                                  \
    }                                                                                             \
    template <class T, class I>                                                                   \
    inline detail::If16AndInteger<T, I, T> operator op(I a, const T& b) {                         \
        return T((float)a) op b;                                                                  \
    }
C10_SIMT_OPERATOR(+)
C10_SIMT_OPERATOR(-)
C10_SIMT_OPERATOR(*)
C10_SIMT_OPERATOR(/)
#undef C10_SIMT_OPERATOR
#define C10_SIMT_COMPARISON(op)                                                                   \
    template <class T>                                                                            \
    inline detail::If16<T, bool> operator op(const T& a, const T& b) {                            \
        return (float)a op(float) b;                                                              \
    }
C10_SIMT_COMPARISON(==)
C10_SIMT_COMPARISON(!=)
C10_SIMT_COMPARISON(<)
C10_SIMT_COMPARISON(<=)
C10_SIMT_COMPARISON(>)
C10_SIMT_COMPARISON(>=)
#undef C10_SIMT_COMPARISON

// CUDA's load through the read-only cache.
template <class T>
inline detail::If16<T, T> __ldg(const T* p) { return *p; }

#define C10_SIMT_FLOAT8(name, Format)                                                             \
    struct alignas(1) name {                                                                      \
        uint8_t x;                                                                                \
        struct from_bits_t {};                                                                    \
        static constexpr from_bits_t from_bits() { return {}; }                                   \
        name() = default;                                                                         \
        constexpr name(uint8_t bits, from_bits_t) : x(bits) {}                                    \
        name(float value) : x(simt::narrow::round<simt::narrow::Format>(value)) {}                \
        operator float() const { return simt::narrow::read<simt::narrow::Format>(x); }            \
    };
C10_SIMT_FLOAT8(Float8_e5m2, E5m2)
C10_SIMT_FLOAT8(Float8_e4m3fn, E4m3)
C10_SIMT_FLOAT8(Float8_e5m2fnuz, E5m2Fnuz)
C10_SIMT_FLOAT8(Float8_e4m3fnuz, E4m3Fnuz)
#undef C10_SIMT_FLOAT8

}  // namespace c10

namespace std {
template <>
class numeric_limits<c10::Half> {
    static constexpr c10::Half bits(unsigned short b) { return {b, c10::Half::from_bits()}; }

  public:
    static constexpr bool is_specialized = true, is_signed = true, is_integer = false;
    static constexpr bool is_exact = false, has_infinity = true, has_quiet_NaN = true;
    static constexpr int radix = 2, digits = 11, digits10 = 3, max_digits10 = 5;
    static constexpr c10::Half min() { return bits(0x0400); }
    static constexpr c10::Half max() { return bits(0x7bff); }
    static constexpr c10::Half lowest() { return bits(0xfbff); }
    static constexpr c10::Half epsilon() { return bits(0x1400); }
    static constexpr c10::Half infinity() { return bits(0x7c00); }
    static constexpr c10::Half quiet_NaN() { return bits(0x7e00); }
    static constexpr c10::Half denorm_min() { return bits(0x0001); }
};
template <>
class numeric_limits<c10::BFloat16> {
    static constexpr c10::BFloat16 bits(unsigned short b) {
        return {b, c10::BFloat16::from_bits()};
    }

  public:
    static constexpr bool is_specialized = true, is_signed = true, is_integer = false;
    static constexpr bool is_exact = false, has_infinity = true, has_quiet_NaN = true;
    static constexpr int radix = 2, digits = 8, digits10 = 2, max_digits10 = 4;
    static constexpr c10::BFloat16 min() { return bits(0x0080); }
    static constexpr c10::BFloat16 max() { return bits(0x7f7f); }
    static constexpr c10::BFloat16 lowest() { return bits(0xff7f); }
    static constexpr c10::BFloat16 epsilon() { return bits(0x3c00); }
    static constexpr c10::BFloat16 infinity() { return bits(0x7f80); }
    static constexpr c10::BFloat16 quiet_NaN() { return bits(0x7fc0); }
    static constexpr c10::BFloat16 denorm_min() { return bits(0x0001); }
};
}  // namespace std
