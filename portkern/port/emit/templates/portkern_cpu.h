// What kernels that were written for GPUs use, on a CPU: shapes, vectors, mathematics, atomics.
// Compile with -fopenmp; without it the blocks run one after the other.
#pragma once
#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif
#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN

using uint = unsigned;
using uchar = unsigned char;
using ushort = unsigned short;

#define PORTKERN_VECTORS(T, name)                                                     \
    struct name##1 { T x; };                                                          \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                \
    struct name##3 { T x, y, z; };                                                    \
    struct alignas(sizeof(T) > 4 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; };     \
    inline name##1 make_##name##1(T x) { return {x}; }                                \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                        \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
PORTKERN_VECTORS(float, float)
PORTKERN_VECTORS(double, double)
PORTKERN_VECTORS(int, int)
PORTKERN_VECTORS(unsigned, uint)
PORTKERN_VECTORS(char, char)
PORTKERN_VECTORS(unsigned char, uchar)
PORTKERN_VECTORS(short, short)
PORTKERN_VECTORS(unsigned short, ushort)
PORTKERN_VECTORS(long long, longlong)
#undef PORTKERN_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    size_t count() const { return (size_t)x * y * z; }
};

// ---- mathematics: the names of CUDA that the C++ library does not have

template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
inline std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) return std::fmax((T)a, (T)b);
    else return (T)a < (T)b ? (T)b : (T)a;
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
inline std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) return std::fmin((T)a, (T)b);
    else return (T)b < (T)a ? (T)b : (T)a;
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return std::fmin(std::fmax(x, 0.0f), 1.0f); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline int __mul24(int x, int y) { return x * y; }
inline int __float2int_rn(float x) { return (int)rintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline int __float2int_rd(float x) { return (int)floorf(x); }
inline float __int2float_rn(int x) { return (float)x; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
template <class To, class From>
inline To bits_as(From x) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To result;
    memcpy(&result, &x, sizeof x);
    return result;
}
inline int __float_as_int(float x) { return bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
template <class T>
inline T __ldg(const T* at) { return *at; }
template <class T>
inline T __ldcs(const T* at) { return *at; }
template <class T>
inline void __stcs(T* at, std::common_type_t<T> value) { *at = value; }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() {}

// ---- atomics, between the threads that run blocks

template <class T, class Change>
inline T atomic_change(T* at, Change change) {
    T old, next;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    do next = change(old);
    while (!__atomic_compare_exchange(at, &old, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return old;
}
#define PORTKERN_ATOMIC(name, result)                                    \
    template <class T>                                                   \
    inline T name(T* at, std::common_type_t<T> value) {                  \
        return atomic_change(at, [=](T old) -> T { return result; });    \
    }
PORTKERN_ATOMIC(atomicAdd, old + value)
PORTKERN_ATOMIC(atomicSub, old - value)
PORTKERN_ATOMIC(atomicMax, old < value ? value : old)
PORTKERN_ATOMIC(atomicMin, value < old ? value : old)
PORTKERN_ATOMIC(atomicAnd, old & value)
PORTKERN_ATOMIC(atomicOr, old | value)
PORTKERN_ATOMIC(atomicXor, old ^ value)
PORTKERN_ATOMIC(atomicExch, (void(old), value))
PORTKERN_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
PORTKERN_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef PORTKERN_ATOMIC
template <class T>
inline T atomicCAS(T* at, std::common_type_t<T> expected, std::common_type_t<T> value) {
    return atomic_change(at, [=](T old) -> T { return old == expected ? value : old; });
}

// ---- threads of a block

template <class Body>
inline void each_thread(dim3 block, Body body) {
    for (unsigned z = 0; z < block.z; ++z)
        for (unsigned y = 0; y < block.y; ++y)
            for (unsigned x = 0; x < block.x; ++x) body(uint3{x, y, z});
}

// The threads of a block with what they keep across barriers.
template <class Thread>
class Block {
public:
    explicit Block(dim3 block) : threads_(block.count()) {
        size_t n = 0;
        each_thread(block, [&](uint3 index) { threads_[n++].threadIdx = index; });
    }
    template <class Body>
    void each(Body body) {
        for (Thread& thread : threads_)
            if (!thread.returned) body(thread);
    }
    // What all threads that are left say of a condition around a barrier.
    template <class Condition>
    bool all(Condition condition) {
        size_t left = 0, holds = 0;
        each([&](Thread& thread) {
            ++left;
            holds += condition(thread) ? 1 : 0;
        });
        if (holds != 0 && holds != left) {
            fprintf(stderr, "threads of a block disagree on whether they reach a barrier\n");
            abort();
        }
        return holds != 0;
    }

private:
    std::vector<Thread> threads_;
};
