// Atomics: CUDA's and HIP's functions with exactly the types their headers overload them for, on
// the host's own atomics, because blocks run on several OS threads.
#pragma once
#include "core.h"
#include "warp.h"

namespace simt {

template <class W>
struct MayAlias {
    typedef W type __attribute__((may_alias));
};
// The integer as which the host's atomics see a T.
template <class T>
using AtomicWord = typename MayAlias<Word<sizeof(T)>>::type;

template <class T>
struct Exactly {  // a parameter that takes no part in deduction
    using type = T;
};
template <class T>
using Same = typename Exactly<T>::type;

// What the compiler may not move accesses across, as on a device: relaxed in the models of CUDA and
// HIP, where the order comes from fences beside it.
static constexpr int atomic_order = __ATOMIC_ACQ_REL;

template <class T>
SIMT_NO_CHECK static inline T atomic_load(const volatile T* p, Scope scope) {
    note_atomic(p, sizeof(T), scope, false);
    const auto* word = reinterpret_cast<const volatile AtomicWord<T>*>(p);
    const Word<sizeof(T)> bits = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    polled();
    return same_bits<T>(bits);
}

template <class T>
SIMT_NO_CHECK static inline void atomic_store(volatile T* p, T value, Scope scope) {
    note_atomic(p, sizeof(T), scope, true);
    auto* word = reinterpret_cast<volatile AtomicWord<T>*>(p);
    __atomic_store_n(word, same_bits<Word<sizeof(T)>>(value), __ATOMIC_RELEASE);
}

template <class T>
SIMT_NO_CHECK static inline T atomic_exchange(volatile T* p, T value, Scope scope) {
    note_atomic(p, sizeof(T), scope, true);
    auto* word = reinterpret_cast<volatile AtomicWord<T>*>(p);
    const Word<sizeof(T)> bits =
        __atomic_exchange_n(word, same_bits<Word<sizeof(T)>>(value), atomic_order);
    polled();
    return same_bits<T>(bits);
}

// Compares bits, not values. Returns what was there.
template <class T>
SIMT_NO_CHECK static inline T atomic_cas(volatile T* p, T expected, T value, Scope scope) {
    note_atomic(p, sizeof(T), scope, true);
    auto* word = reinterpret_cast<volatile AtomicWord<T>*>(p);
    Word<sizeof(T)> bits = same_bits<Word<sizeof(T)>>(expected);
    __atomic_compare_exchange_n(word, &bits, same_bits<Word<sizeof(T)>>(value), false,
                                atomic_order, __ATOMIC_ACQUIRE);
    polled();
    return same_bits<T>(bits);
}

// *p = rule(*p, value). Returns what was there.
template <class T, class Rule>
SIMT_NO_CHECK static inline T atomic_update(volatile T* p, T value, Scope scope, Rule rule) {
    note_atomic(p, sizeof(T), scope, true);
    auto* word = reinterpret_cast<volatile AtomicWord<T>*>(p);
    Word<sizeof(T)> bits = __atomic_load_n(word, __ATOMIC_RELAXED);
    for (;;) {
        const T before = same_bits<T>(bits);
        const T after = rule(before, value);
        if (__atomic_compare_exchange_n(word, &bits, same_bits<Word<sizeof(T)>>(after), true,
                                        atomic_order, __ATOMIC_RELAXED))
            return before;
    }
}

// Adding zero is how some code reads an atomic in a loop.
static inline void polled_if(bool reads) {
    if (reads) polled();
}

template <class T>
SIMT_NO_CHECK static inline T fetch_add(volatile T* p, T value, Scope scope) {
    note_atomic(p, sizeof(T), scope, true);
    const T before = __atomic_fetch_add(p, value, atomic_order);
    polled_if(value == 0);
    return before;
}

template <class T>
static inline T atomic_add(volatile T* p, T value, Scope scope) {
    if constexpr (std::is_integral<T>::value)
        return fetch_add(p, value, scope);
    else if constexpr (std::is_floating_point<T>::value)
        return atomic_update(p, value, scope, Sum{});
    else
        return atomic_update(p, value, scope, [](T a, T b) { return half_sum(a, b, 0); });
}

template <class T>
static inline T atomic_sub(volatile T* p, T value, Scope scope) {
    if constexpr (std::is_integral<T>::value)
        return atomic_add(p, (T)(0 - (std::make_unsigned_t<T>)value), scope);
    else
        return atomic_add(p, (T)-value, scope);
}

// Not __atomic_fetch_and and its kin: g++ 12.2 returns the new value where the result and the
// operand may share a register.
template <class T>
static inline T atomic_and(volatile T* p, T value, Scope scope) {
    return atomic_update(p, value, scope, [](T a, T b) { return (T)(a & b); });
}

template <class T>
static inline T atomic_or(volatile T* p, T value, Scope scope) {
    const T before = atomic_update(p, value, scope, [](T a, T b) { return (T)(a | b); });
    polled_if(value == 0);
    return before;
}

template <class T>
static inline T atomic_xor(volatile T* p, T value, Scope scope) {
    return atomic_update(p, value, scope, [](T a, T b) { return (T)(a ^ b); });
}

// A NaN loses against a number, as in fmin and fmax.
template <class T>
static inline T atomic_min(volatile T* p, T value, Scope scope) {
    return atomic_update(p, value, scope, [](T a, T b) { return b < a || a != a ? b : a; });
}
template <class T>
static inline T atomic_max(volatile T* p, T value, Scope scope) {
    return atomic_update(p, value, scope, [](T a, T b) { return a < b || a != a ? b : a; });
}

// Counts up to `most` and starts again at 0; down from `most`, and starts again there.
static inline unsigned atomic_inc(volatile unsigned* p, unsigned most, Scope scope) {
    return atomic_update(p, most, scope, [](unsigned a, unsigned b) { return a >= b ? 0 : a + 1; });
}
static inline unsigned atomic_dec(volatile unsigned* p, unsigned most, Scope scope) {
    return atomic_update(p, most, scope,
                         [](unsigned a, unsigned b) { return a == 0 || a > b ? b : a - 1; });
}

}  // namespace simt

// The vendors' overloads. A type that is missing here is missing there: nvcc takes no size_t*,
// neither takes a pointer to volatile.
#define SIMT_ATOMIC_FORM(NAME, SCOPE, OP, T) \
    static inline T NAME(T* p, T value) { return simt::OP(p, value, simt::Scope::SCOPE); }
#define SIMT_CAS_FORM(NAME, SCOPE, T)                                        \
    static inline T NAME(T* p, T expected, T value) {                        \
        return simt::atomic_cas(p, expected, value, simt::Scope::SCOPE);     \
    }
#define SIMT_HALF_FORM(NAME, SCOPE, OP)                   \
    template <class T, class = simt::IfHalf<T>>           \
    static inline T NAME(T* p, simt::Same<T> value) {     \
        return simt::OP(p, value, simt::Scope::SCOPE);    \
    }

#if SIMT_HIP
#define SIMT_ATOMIC(NAME, OP, T)                 \
    SIMT_ATOMIC_FORM(NAME, device, OP, T)        \
    SIMT_ATOMIC_FORM(NAME##_system, system, OP, T)
#define SIMT_CAS(T)                     \
    SIMT_CAS_FORM(atomicCAS, device, T) \
    SIMT_CAS_FORM(atomicCAS_system, system, T)
#define SIMT_INTEGERS(M, NAME, OP) \
    M(NAME, OP, int)               \
    M(NAME, OP, unsigned)          \
    M(NAME, OP, unsigned long)     \
    M(NAME, OP, unsigned long long)
#define SIMT_FLOATS(M, NAME, OP) \
    M(NAME, OP, float)           \
    M(NAME, OP, double)

SIMT_INTEGERS(SIMT_ATOMIC, atomicAdd, atomic_add)
SIMT_INTEGERS(SIMT_ATOMIC, atomicSub, atomic_sub)
SIMT_INTEGERS(SIMT_ATOMIC, atomicExch, atomic_exchange)
SIMT_INTEGERS(SIMT_ATOMIC, atomicMin, atomic_min)
SIMT_INTEGERS(SIMT_ATOMIC, atomicMax, atomic_max)
SIMT_INTEGERS(SIMT_ATOMIC, atomicAnd, atomic_and)
SIMT_INTEGERS(SIMT_ATOMIC, atomicOr, atomic_or)
SIMT_INTEGERS(SIMT_ATOMIC, atomicXor, atomic_xor)
SIMT_ATOMIC(atomicMin, atomic_min, long long)
SIMT_ATOMIC(atomicMax, atomic_max, long long)
SIMT_FLOATS(SIMT_ATOMIC, atomicAdd, atomic_add)
SIMT_FLOATS(SIMT_ATOMIC, atomicSub, atomic_sub)
SIMT_FLOATS(SIMT_ATOMIC, atomicExch, atomic_exchange)
SIMT_FLOATS(SIMT_ATOMIC, atomicMin, atomic_min)
SIMT_FLOATS(SIMT_ATOMIC, atomicMax, atomic_max)
SIMT_ATOMIC_FORM(atomicInc, device, atomic_inc, unsigned)
SIMT_ATOMIC_FORM(atomicDec, device, atomic_dec, unsigned)
SIMT_CAS(int)
SIMT_CAS(unsigned)
SIMT_CAS(unsigned short)
SIMT_CAS(unsigned long)
SIMT_CAS(unsigned long long)
SIMT_CAS(float)
SIMT_CAS(double)
SIMT_HALF_FORM(atomicAdd, device, atomic_add)

// "Unsafe" ones may lose updates in fine-grained memory; there is none here.
SIMT_ATOMIC_FORM(unsafeAtomicAdd, device, atomic_add, float)
SIMT_ATOMIC_FORM(unsafeAtomicAdd, device, atomic_add, double)
SIMT_ATOMIC_FORM(unsafeAtomicMin, device, atomic_min, float)
SIMT_ATOMIC_FORM(unsafeAtomicMin, device, atomic_min, double)
SIMT_ATOMIC_FORM(unsafeAtomicMax, device, atomic_max, float)
SIMT_ATOMIC_FORM(unsafeAtomicMax, device, atomic_max, double)
SIMT_ATOMIC_FORM(safeAtomicAdd, device, atomic_add, float)
SIMT_ATOMIC_FORM(safeAtomicAdd, device, atomic_add, double)
SIMT_ATOMIC_FORM(safeAtomicMin, device, atomic_min, float)
SIMT_ATOMIC_FORM(safeAtomicMin, device, atomic_min, double)
SIMT_ATOMIC_FORM(safeAtomicMax, device, atomic_max, float)
SIMT_ATOMIC_FORM(safeAtomicMax, device, atomic_max, double)
SIMT_HALF_FORM(unsafeAtomicAdd, device, atomic_add)
static inline void atomicAddNoRet(float* p, float value) { atomicAdd(p, value); }

#else  // CUDA
#define SIMT_ATOMIC(NAME, OP, T)                 \
    SIMT_ATOMIC_FORM(NAME, device, OP, T)        \
    SIMT_ATOMIC_FORM(NAME##_block, block, OP, T) \
    SIMT_ATOMIC_FORM(NAME##_system, system, OP, T)
#define SIMT_CAS(T)                          \
    SIMT_CAS_FORM(atomicCAS, device, T)      \
    SIMT_CAS_FORM(atomicCAS_block, block, T) \
    SIMT_CAS_FORM(atomicCAS_system, system, T)
#define SIMT_INTEGERS(M, NAME, OP) \
    M(NAME, OP, int)               \
    M(NAME, OP, unsigned)          \
    M(NAME, OP, long long)         \
    M(NAME, OP, unsigned long long)

SIMT_ATOMIC(atomicAdd, atomic_add, int)
SIMT_ATOMIC(atomicAdd, atomic_add, unsigned)
SIMT_ATOMIC(atomicAdd, atomic_add, unsigned long long)
SIMT_ATOMIC(atomicAdd, atomic_add, float)
SIMT_ATOMIC(atomicAdd, atomic_add, double)
SIMT_ATOMIC(atomicSub, atomic_sub, int)
SIMT_ATOMIC(atomicSub, atomic_sub, unsigned)
SIMT_ATOMIC(atomicExch, atomic_exchange, int)
SIMT_ATOMIC(atomicExch, atomic_exchange, unsigned)
SIMT_ATOMIC(atomicExch, atomic_exchange, unsigned long long)
SIMT_ATOMIC(atomicExch, atomic_exchange, float)
SIMT_INTEGERS(SIMT_ATOMIC, atomicMin, atomic_min)
SIMT_INTEGERS(SIMT_ATOMIC, atomicMax, atomic_max)
SIMT_INTEGERS(SIMT_ATOMIC, atomicAnd, atomic_and)
SIMT_INTEGERS(SIMT_ATOMIC, atomicOr, atomic_or)
SIMT_INTEGERS(SIMT_ATOMIC, atomicXor, atomic_xor)
SIMT_ATOMIC(atomicInc, atomic_inc, unsigned)
SIMT_ATOMIC(atomicDec, atomic_dec, unsigned)
SIMT_CAS(int)
SIMT_CAS(unsigned)
SIMT_CAS(unsigned short)
SIMT_CAS(unsigned long long)
SIMT_HALF_FORM(atomicAdd, device, atomic_add)
SIMT_HALF_FORM(atomicAdd_block, block, atomic_add)
SIMT_HALF_FORM(atomicAdd_system, system, atomic_add)

// Compute capability 9.0: each element is atomic, the vector is not.
static inline float2 atomicAdd(float2* p, float2 v) {
    return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y)};
}
static inline float4 atomicAdd(float4* p, float4 v) {
    return {atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y), atomicAdd(&p->z, v.z),
            atomicAdd(&p->w, v.w)};
}
#endif
#undef SIMT_FLOATS
#undef SIMT_INTEGERS
#undef SIMT_CAS
#undef SIMT_ATOMIC
#undef SIMT_HALF_FORM
#undef SIMT_CAS_FORM
#undef SIMT_ATOMIC_FORM

// ---- with orders and scopes -------------------------------------------------------------

namespace simt {

static inline bool releases(int order) {
    return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}
static inline bool acquires(int order) {
    return order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME || order == __ATOMIC_ACQ_REL ||
           order == __ATOMIC_SEQ_CST;
}

// An ordered atomic is a relaxed one between fences, where the order asks for them.
template <class F>
static inline auto ordered(int order, Scope scope, F&& f) {
    if (releases(order)) fence(scope);
    auto result = f();
    if (acquires(order)) fence(scope);
    return result;
}
static inline void order_fence(int order, Scope scope) {
    if (order != __ATOMIC_RELAXED) fence(scope);
}

template <class T>
static inline T ordered_load(const volatile T* p, int order, Scope scope) {
    return ordered(order, scope, [=] { return atomic_load(p, scope); });
}
template <class T>
static inline void ordered_store(volatile T* p, T value, int order, Scope scope) {
    ordered(order, scope, [=] {
        atomic_store(p, value, scope);
        return 0;
    });
}
template <class T>
static inline bool ordered_cas(volatile T* p, T& expected, T value, int success, int failure,
                               Scope scope) {
    if (releases(success)) fence(scope);
    const T wanted = expected;
    expected = atomic_cas(p, wanted, value, scope);
    using W = Word<sizeof(T)>;
    const bool done = same_bits<W>(expected) == same_bits<W>(wanted);
    if (acquires(done ? success : failure)) fence(scope);
    return done;
}

}  // namespace simt

#if SIMT_HIP

#ifndef __HIP_MEMORY_SCOPE_SINGLETHREAD
#define __HIP_MEMORY_SCOPE_SINGLETHREAD 1
#define __HIP_MEMORY_SCOPE_WAVEFRONT 2
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
#endif

namespace simt {
namespace hip {

static inline Scope scope(int number) {
    if (number == __HIP_MEMORY_SCOPE_SYSTEM) return Scope::system;
    return number == __HIP_MEMORY_SCOPE_AGENT ? Scope::device : Scope::block;
}

template <class T>
static inline T load(const volatile T* p, int order, int where) {
    return ordered_load(p, order, scope(where));
}
template <class T>
static inline void store(volatile T* p, Same<T> value, int order, int where) {
    ordered_store(p, value, order, scope(where));
}
template <class T>
static inline bool compare_exchange(volatile T* p, Same<T>* expected, Same<T> value, int success,
                                    int failure, int where) {
    return ordered_cas(p, *expected, value, success, failure, scope(where));
}

#define SIMT_ORDERED(NAME, OP)                                                 \
    template <class T>                                                         \
    static inline T NAME(volatile T* p, Same<T> value, int order, int where) { \
        const Scope s = scope(where);                                          \
        return ordered(order, s, [=] { return OP(p, value, s); });             \
    }
SIMT_ORDERED(exchange, atomic_exchange)
SIMT_ORDERED(fetch_add, atomic_add)
SIMT_ORDERED(fetch_sub, atomic_sub)
SIMT_ORDERED(fetch_min, atomic_min)
SIMT_ORDERED(fetch_max, atomic_max)
SIMT_ORDERED(fetch_and, atomic_and)
SIMT_ORDERED(fetch_or, atomic_or)
SIMT_ORDERED(fetch_xor, atomic_xor)
#undef SIMT_ORDERED

}  // namespace hip
}  // namespace simt

// Macros, because clang knows these names as builtins of its own.
#define __hip_atomic_load(...) ::simt::hip::load(__VA_ARGS__)
#define __hip_atomic_store(...) ::simt::hip::store(__VA_ARGS__)
#define __hip_atomic_exchange(...) ::simt::hip::exchange(__VA_ARGS__)
#define __hip_atomic_compare_exchange_weak(...) ::simt::hip::compare_exchange(__VA_ARGS__)
#define __hip_atomic_compare_exchange_strong(...) ::simt::hip::compare_exchange(__VA_ARGS__)
#define __hip_atomic_fetch_add(...) ::simt::hip::fetch_add(__VA_ARGS__)
#define __hip_atomic_fetch_sub(...) ::simt::hip::fetch_sub(__VA_ARGS__)
#define __hip_atomic_fetch_min(...) ::simt::hip::fetch_min(__VA_ARGS__)
#define __hip_atomic_fetch_max(...) ::simt::hip::fetch_max(__VA_ARGS__)
#define __hip_atomic_fetch_and(...) ::simt::hip::fetch_and(__VA_ARGS__)
#define __hip_atomic_fetch_or(...) ::simt::hip::fetch_or(__VA_ARGS__)
#define __hip_atomic_fetch_xor(...) ::simt::hip::fetch_xor(__VA_ARGS__)

#endif
