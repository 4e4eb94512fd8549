// assert() for kernels and host code. As the standard has it, every inclusion looks at NDEBUG anew,
// so there is no #pragma once.
#include "simt/core.h"

#undef assert
#ifdef NDEBUG
#define assert(...) ((void)0)
#else
#define assert(...) ((__VA_ARGS__) ? (void)0 : ::simt::assertion_failed(#__VA_ARGS__, SIMT_HERE))
#endif

#ifndef SIMT_ASSERT
#define SIMT_ASSERT
namespace simt {
// In a kernel: SX407, and the launch ends with cudaErrorAssert. In host code: abort().
[[noreturn]] SIMT_API void assertion_failed(const char* condition, Site at);
}  // namespace simt
#endif
