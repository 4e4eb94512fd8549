// Elements that one access to memory moves.
#pragma once
#include <portkern/portable.h>

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V, class T = scalar_t>  // elements of one access
struct alignas(V * sizeof(T)) Some {
    T at[V];
};
using Pack = Some<VEC>;
