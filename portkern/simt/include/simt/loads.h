// Loads and stores with cache hints, fences, clocks, traps and address spaces.
#pragma once
#include <ctime>

#include "core.h"
#include "warp.h"

namespace simt {

// Before a load that may be one of a loop: the value may have changed since.
static inline void poll() {
    polled();
    asm volatile("" : : : "memory");
}

// Nanoseconds of a clock that never steps back, as a device clock of 1 GHz.
static inline long long device_clock() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    polled();
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

}  // namespace simt

// ---- hints ------------------------------------------------------------------------------

// Hints change no value. What loads past the near cache is what code polls with: others get a turn.
#define SIMT_LOADABLE(M, ...)                                                          \
    M(char, __VA_ARGS__) M(signed char, __VA_ARGS__) M(unsigned char, __VA_ARGS__)     \
    M(short, __VA_ARGS__) M(unsigned short, __VA_ARGS__)                               \
    M(int, __VA_ARGS__) M(unsigned, __VA_ARGS__)                                       \
    M(long, __VA_ARGS__) M(unsigned long, __VA_ARGS__)                                 \
    M(long long, __VA_ARGS__) M(unsigned long long, __VA_ARGS__)                       \
    M(float, __VA_ARGS__) M(double, __VA_ARGS__)                                       \
    M(char2, __VA_ARGS__) M(char4, __VA_ARGS__) M(uchar2, __VA_ARGS__)                 \
    M(uchar4, __VA_ARGS__) M(short2, __VA_ARGS__) M(short4, __VA_ARGS__)               \
    M(ushort2, __VA_ARGS__) M(ushort4, __VA_ARGS__) M(int2, __VA_ARGS__)               \
    M(int4, __VA_ARGS__) M(uint2, __VA_ARGS__) M(uint4, __VA_ARGS__)                   \
    M(longlong2, __VA_ARGS__) M(ulonglong2, __VA_ARGS__) M(float2, __VA_ARGS__)        \
    M(float4, __VA_ARGS__) M(double2, __VA_ARGS__)
#define SIMT_LOADS(T, NAME, BEFORE)                                  \
    SIMT_INLINE T NAME(const T* p) {                                 \
        BEFORE;                                                      \
        return *p;                                                   \
    }
#define SIMT_STORES(T, NAME) \
    SIMT_INLINE void NAME(T* p, T value) { *p = value; }
#define SIMT_LOAD(NAME, BEFORE)                    \
    SIMT_LOADABLE(SIMT_LOADS, NAME, BEFORE)        \
    template <class T>                             \
    SIMT_INLINE simt::IfHalf<T> NAME(const T* p) {   \
        BEFORE;                                    \
        return *p;                                 \
    }
#define SIMT_STORE(NAME)                                    \
    SIMT_LOADABLE(SIMT_STORES, NAME)                        \
    template <class T>                                      \
    SIMT_INLINE void NAME(T* p, simt::IfHalf<T> value) {    \
        *p = value;                                         \
    }

SIMT_LOAD(__ldg, )
#if !SIMT_HIP  // HIP has __ldg alone
SIMT_LOAD(__ldca, )
SIMT_LOAD(__ldcs, )
SIMT_LOAD(__ldlu, )
SIMT_LOAD(__ldcg, simt::poll())
SIMT_LOAD(__ldcv, simt::poll())
SIMT_STORE(__stwb)
SIMT_STORE(__stcg)
SIMT_STORE(__stcs)
SIMT_STORE(__stwt)
#endif
#undef SIMT_STORE
#undef SIMT_LOAD
#undef SIMT_STORES
#undef SIMT_LOADS
#undef SIMT_LOADABLE

// ---- compiler hints ---------------------------------------------------------------------

#ifndef __clang__
#define __builtin_assume(x) ((x) ? (void)0 : __builtin_unreachable())
template <class T>
static inline T __builtin_nontemporal_load(const T* p) {
    return *p;
}
template <class T, class U>
static inline void __builtin_nontemporal_store(U value, T* p) {
    *p = value;
}
#endif
#ifndef __assume
#define __assume(x) __builtin_assume(x)
#endif

// ---- fences, clocks, traps --------------------------------------------------------------

static inline void __threadfence() { simt::fence(simt::Scope::device); }
static inline void __threadfence_block() { simt::fence(simt::Scope::block); }
static inline void __threadfence_system() { simt::fence(simt::Scope::system); }

static inline long long clock64() { return simt::device_clock(); }  // so is clock() in a kernel
#if SIMT_HIP
static inline long long wall_clock64() { return simt::device_clock(); }
static inline long long __clock64() { return simt::device_clock(); }
static inline long long __clock() { return simt::device_clock(); }
#else
static inline void __nanosleep(unsigned) { simt::spin(); }
[[noreturn]] static inline void __trap(SIMT_AT) { simt::fatal(408, at, "__trap()"); }
[[noreturn]] static inline void __brkpt(SIMT_AT) {
    simt::fatal(408, at, "__brkpt() without a debugger");
}
static inline void __prof_trigger(int) {}

// ---- address spaces ---------------------------------------------------------------------

static inline unsigned __isShared(const void* p) { return simt::is_shared(p); }
static inline unsigned __isGlobal(const void* p) { return simt::is_global(p); }
static inline unsigned __isLocal(const void* p) {
    return !simt::is_shared(p) && !simt::is_global(p);
}

// Shared addresses are offsets into the block's memory; all other spaces are flat.
static inline size_t __cvta_generic_to_shared(const void* p) { return simt::shared_address(p); }
static inline void* __cvta_shared_to_generic(size_t address) {
    return simt::shared_pointer(address);
}
#define SIMT_FLAT(SPACE)                                                                      \
    static inline size_t __cvta_generic_to_##SPACE(const void* p) { return (size_t)p; }       \
    static inline void* __cvta_##SPACE##_to_generic(size_t address) { return (void*)address; }
SIMT_FLAT(global)
SIMT_FLAT(local)
SIMT_FLAT(constant)
SIMT_FLAT(grid_constant)
#undef SIMT_FLAT
#endif
