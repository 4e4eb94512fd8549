// c10::complex: two numbers of which the arithmetic is std::complex's.
#pragma once
#include <cmath>
#include <complex>

namespace c10 {

template <class T>
struct alignas(sizeof(T) * 2) complex {
    using value_type = T;
    T real_ = T(0), imag_ = T(0);

    constexpr complex() = default;
    constexpr complex(const T& real, const T& imag = T()) : real_(real), imag_(imag) {}
    template <class U>
    constexpr complex(const complex<U>& z) : real_((T)z.real_), imag_((T)z.imag_) {}
    template <class U>
    constexpr complex(const std::complex<U>& z) : real_((T)z.real()), imag_((T)z.imag()) {}
    explicit operator std::complex<T>() const { return {real_, imag_}; }

    constexpr T real() const { return real_; }
    constexpr T imag() const { return imag_; }
    constexpr void real(T value) { real_ = value; }
    constexpr void imag(T value) { imag_ = value; }

    complex& operator+=(const complex& z) { return *this = *this + z; }
    complex& operator-=(const complex& z) { return *this = *this - z; }
    complex& operator*=(const complex& z) { return *this = *this * z; }
    complex& operator/=(const complex& z) { return *this = *this / z; }

    friend constexpr complex operator+(const complex& a, const complex& b) {
        return {a.real_ + b.real_, a.imag_ + b.imag_};
    }
    friend constexpr complex operator-(const complex& a, const complex& b) {
        return {a.real_ - b.real_, a.imag_ - b.imag_};
    }
    friend constexpr complex operator*(const complex& a, const complex& b) {
        return {a.real_ * b.real_ - a.imag_ * b.imag_, a.real_ * b.imag_ + a.imag_ * b.real_};
    }
    friend complex operator/(const complex& a, const complex& b) {
        return complex(std::complex<T>(a) / std::complex<T>(b));
    }
    friend constexpr complex operator-(const complex& z) { return {-z.real_, -z.imag_}; }
    friend constexpr bool operator==(const complex& a, const complex& b) {
        return a.real_ == b.real_ && a.imag_ == b.imag_;
    }
    friend constexpr bool operator!=(const complex& a, const complex& b) { return !(a == b); }
};

template <class T>
inline T abs(const complex<T>& z) { return std::hypot(z.real_, z.imag_); }
template <class T>
inline complex<T> conj(const complex<T>& z) { return {z.real_, -z.imag_}; }
template <class T>
inline complex<T> exp(const complex<T>& z) {
    return complex<T>(std::exp(std::complex<T>(z)));
}

}  // namespace c10

namespace std {
template <class T>
inline T abs(const c10::complex<T>& z) { return c10::abs(z); }
template <class T>
inline c10::complex<T> conj(const c10::complex<T>& z) { return c10::conj(z); }
}  // namespace std
