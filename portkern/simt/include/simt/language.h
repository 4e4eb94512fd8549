// The words of CUDA C++ and HIP that are not functions of the warp: qualifiers, assert, printf.
// There is one pass over the source: what is qualified __device__ or __host__ is both.
#pragma once
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define __global__
#define __device__
#define __host__
// For the runtime to know it by: a section per use, as one may not hold const and other variables.
#define SIMT_SECTION(kind, number) SIMT_SECTION_NAMED(kind, number)
#define SIMT_SECTION_NAMED(kind, number) __attribute__((section(kind #number)))
#define __constant__ SIMT_SECTION("simt_constant.", __COUNTER__)
#define __managed__ SIMT_SECTION("simt_managed.", __COUNTER__)
#ifndef __HIP_PLATFORM_AMD__  // HIP does not know it
#define __grid_constant__
#endif
#define __forceinline__ inline  // always_inline is an error where the address is taken
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
// The rewriter has made a statement of it; what it has not seen limits nothing.
#define __launch_bounds__(...)
#define __maxnreg__(n)

// printf in a kernel is the host's: it prints when it is called.
