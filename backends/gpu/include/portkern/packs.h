// Elements that one access to memory moves.
#pragma once
#include <portkern/portable.h>

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V, class T = scalar_t>  // elements of one access
struct alignas(V * sizeof(T)) Some {
    T at[V];
};
using Pack = Some<VEC>;

// 16 bytes as one value: of a struct's elements compilers make accesses of two bytes each, and HIP's own
// uint4, a union, is kept in memory.
#if PORTKERN_HIP && defined(__clang__)
typedef unsigned Bits __attribute__((ext_vector_type(4)));
#else
using Bits = uint4;
#endif

// How far after 16 bytes of memory an element lies, in elements.
__device__ __forceinline__ unsigned skipped(const scalar_t* at) {
    return (unsigned)((uintptr_t)at % 16 / sizeof(scalar_t));
}
