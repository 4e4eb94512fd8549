// Kernels whose object code is executed: each hands its launch over before its own first statement.
#pragma once
#include "core.h"

namespace simt {

struct Passed {  // an argument as the kernel has it
    const void* at;
    size_t bytes;
};
// True where the launch has been executed; the kernel's source is then not run.
SIMT_API bool execute_object(const Passed* arguments, size_t count);

// Inlined, so that the call comes from the kernel's own code, by which its name is known.
template <class... P>
__attribute__((always_inline)) static inline bool as_object(const P&... arguments) {
    const Passed passed[] = {Passed{__builtin_addressof(arguments), sizeof arguments}..., Passed{}};
    return execute_object(passed, sizeof...(P));
}

}  // namespace simt

// Two instances of equal code would else become one function, or one of another name.
#undef __global__
#ifdef __clang__
#define __global__ __attribute__((noinline))
#else
#define __global__ __attribute__((noipa))
#endif
