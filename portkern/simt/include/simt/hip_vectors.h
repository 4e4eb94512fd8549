// HIP's built-in vectors have arithmetic by component, which CUDA's have not.
#pragma once
#include <type_traits>

#include "vectors.h"

namespace simt::detail {

template <class V>
struct Vector {
    static constexpr int lanes = 0;
};
#define SIMT_VECTOR(name, T)                                                                      \
    template <> struct Vector<name##1> { using Lane = T; static constexpr int lanes = 1; };       \
    template <> struct Vector<name##2> { using Lane = T; static constexpr int lanes = 2; };       \
    template <> struct Vector<name##3> { using Lane = T; static constexpr int lanes = 3; };       \
    template <> struct Vector<name##4> { using Lane = T; static constexpr int lanes = 4; };
SIMT_VECTOR(char, signed char)
SIMT_VECTOR(uchar, unsigned char)
SIMT_VECTOR(short, short)
SIMT_VECTOR(ushort, unsigned short)
SIMT_VECTOR(int, int)
SIMT_VECTOR(uint, unsigned int)
SIMT_VECTOR(long, long)
SIMT_VECTOR(ulong, unsigned long)
SIMT_VECTOR(longlong, long long)
SIMT_VECTOR(ulonglong, unsigned long long)
SIMT_VECTOR(float, float)
SIMT_VECTOR(double, double)
#undef SIMT_VECTOR

// V itself where V is a vector; nothing otherwise.
template <class V>
using IfVector = std::enable_if_t<(Vector<V>::lanes > 0), V>;
template <class V>
using LaneOf = std::enable_if_t<(Vector<V>::lanes > 0), typename Vector<V>::Lane>;

template <class V, class F>
static inline void by_lane(V& a, const V& b, F f) {
    f(a.x, b.x);
    if constexpr (Vector<V>::lanes > 1) f(a.y, b.y);
    if constexpr (Vector<V>::lanes > 2) f(a.z, b.z);
    if constexpr (Vector<V>::lanes > 3) f(a.w, b.w);
}
template <class V>
static inline V all_lanes(typename Vector<V>::Lane s) {
    V v;
    by_lane(v, v, [s](auto& to, auto&) { to = s; });
    return v;
}

}  // namespace simt::detail

#define SIMT_VECTOR_OPERATOR(op)                                                                  \
    template <class V>                                                                            \
    static inline ::simt::detail::IfVector<V>& operator op##=(V& a, const V& b) {                 \
        ::simt::detail::by_lane(a, b, [](auto& to, const auto& by) { to op##= by; });            \
        return a;                                                                                 \
    }                                                                                             \
    template <class V>                                                                            \
    static inline ::simt::detail::IfVector<V>& operator op##=(V& a,                               \
                                                              ::simt::detail::LaneOf<V> s) {      \
        return a op##= ::simt::detail::all_lanes<V>(s);                                          \
    }                                                                                             \
    template <class V>                                                                            \
    static inline ::simt::detail::IfVector<V> operator op(V a, const V& b) {                      \
        return a op##= b;                                                                        \
    }                                                                                             \
    template <class V>                                                                            \
    static inline ::simt::detail::IfVector<V> operator op(V a, ::simt::detail::LaneOf<V> s) {     \
        return a op##= ::simt::detail::all_lanes<V>(s);                                          \
    }                                                                                             \
    template <class V>                                                                            \
    static inline ::simt::detail::IfVector<V> operator op(::simt::detail::LaneOf<V> s,            \
                                                          const V& b) {                           \
        V a = ::simt::detail::all_lanes<V>(s);                                                    \
        return a op##= b;                                                                        \
    }
SIMT_VECTOR_OPERATOR(+)
SIMT_VECTOR_OPERATOR(-)
SIMT_VECTOR_OPERATOR(*)
SIMT_VECTOR_OPERATOR(/)
SIMT_VECTOR_OPERATOR(%)
SIMT_VECTOR_OPERATOR(&)
SIMT_VECTOR_OPERATOR(|)
SIMT_VECTOR_OPERATOR(^)
SIMT_VECTOR_OPERATOR(<<)
SIMT_VECTOR_OPERATOR(>>)
#undef SIMT_VECTOR_OPERATOR

template <class V>
static inline ::simt::detail::IfVector<V> operator-(const V& a) {
    V negative = a;
    ::simt::detail::by_lane(negative, a, [](auto& to, const auto& from) { to = -from; });
    return negative;
}
template <class V>
static inline std::enable_if_t<(::simt::detail::Vector<V>::lanes > 0), bool> operator==(
    V a, const V& b) {
    bool same = true;
    ::simt::detail::by_lane(a, b, [&same](auto& x, const auto& y) { same &= x == y; });
    return same;
}
template <class V>
static inline std::enable_if_t<(::simt::detail::Vector<V>::lanes > 0), bool> operator!=(
    const V& a, const V& b) {
    return !(a == b);
}
