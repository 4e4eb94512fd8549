// What clang's ext_vector_type(N) makes of T, for both compilers and for element types that are
// classes (half, bfloat16): elements by index and by name, arithmetic, one value for all elements.
#pragma once
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <type_traits>

namespace simt {
namespace detail {

constexpr size_t power_of_two(size_t n) {
    size_t p = 1;
    while (p < n) p *= 2;
    return p;
}

// Names for the first elements; a union takes no members that need a constructor.
template <class T, int N, bool = std::is_trivially_default_constructible<T>::value>
struct Lanes {
    T lane[N];
};
template <class T>
struct Lanes<T, 2, true> {
    union {
        T lane[2];
        struct { T x, y; };
    };
};
template <class T>
struct Lanes<T, 3, true> {
    union {
        T lane[3];
        struct { T x, y, z; };
    };
};
template <class T>
struct Lanes<T, 4, true> {
    union {
        T lane[4];
        struct { T x, y, z, w; };
    };
};

// The compiler's own vector of the same layout, for its builtins; a type nobody has otherwise.
template <class T, int N, bool = std::is_arithmetic<T>::value && (N & (N - 1)) == 0>
struct Native {
    struct type {};
};
template <class T, int N>
struct Native<T, N, true> {
    typedef T type __attribute__((vector_size(sizeof(T) * N)));
};

template <size_t Size>
struct Signed;
template <> struct Signed<1> { using type = signed char; };
template <> struct Signed<2> { using type = short; };
template <> struct Signed<4> { using type = int; };
template <> struct Signed<8> { using type = long long; };

}  // namespace detail

// N elements, as large and as aligned as the next power of two of them.
template <class T, int N>
struct alignas(sizeof(T) * detail::power_of_two(N)) ext_vector : detail::Lanes<T, N> {
    using Native = typename detail::Native<T, N>::type;
    using detail::Lanes<T, N>::lane;

    ext_vector() = default;
    template <class U, class = std::enable_if_t<std::is_same<U, T>::value ||
                                                (std::is_arithmetic<U>::value &&
                                                 std::is_convertible<U, T>::value)>>
    ext_vector(U value) {
        for (T& element : lane) element = static_cast<T>(value);
    }
    ext_vector(std::initializer_list<T> values) {  // elements without a value are zero
        int i = 0;
        for (const T& value : values) {
            if (i < N) lane[i++] = value;
        }
        while (i < N) lane[i++] = static_cast<T>(0.f);
    }
    ext_vector(const Native& v) { std::memcpy(lane, &v, sizeof(lane)); }
    operator Native() const {
        Native v;
        std::memcpy(&v, lane, sizeof(v) < sizeof(lane) ? sizeof(v) : sizeof(lane));
        return v;
    }

    T& operator[](size_t i) { return lane[i]; }
    const T& operator[](size_t i) const { return lane[i]; }

    // Each operator works on elements; a number on either side stands for all of its elements.
#define SIMT_VECTOR_OPERATOR(OP)                                                \
    friend ext_vector operator OP(const ext_vector& a, const ext_vector& b) {   \
        ext_vector r;                                                           \
        for (int i = 0; i < N; ++i) r.lane[i] = static_cast<T>(a.lane[i] OP b.lane[i]); \
        return r;                                                               \
    }                                                                           \
    ext_vector& operator OP##=(const ext_vector& b) { return *this = *this OP b; }
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

    // A comparison gives -1 where it holds and 0 elsewhere, in integers of the elements' size.
    using Truth = ext_vector<typename detail::Signed<sizeof(T)>::type, N>;
#define SIMT_VECTOR_COMPARISON(OP)                                              \
    friend Truth operator OP(const ext_vector& a, const ext_vector& b) {        \
        Truth r;                                                                \
        for (int i = 0; i < N; ++i) r.lane[i] = a.lane[i] OP b.lane[i] ? -1 : 0; \
        return r;                                                               \
    }
    SIMT_VECTOR_COMPARISON(==)
    SIMT_VECTOR_COMPARISON(!=)
    SIMT_VECTOR_COMPARISON(<)
    SIMT_VECTOR_COMPARISON(<=)
    SIMT_VECTOR_COMPARISON(>)
    SIMT_VECTOR_COMPARISON(>=)
#undef SIMT_VECTOR_COMPARISON

    ext_vector operator+() const { return *this; }
    ext_vector operator-() const {
        ext_vector r;
        for (int i = 0; i < N; ++i) r.lane[i] = static_cast<T>(-lane[i]);
        return r;
    }
    ext_vector operator~() const {
        ext_vector r;
        for (int i = 0; i < N; ++i) r.lane[i] = static_cast<T>(~lane[i]);
        return r;
    }
};

}  // namespace simt
