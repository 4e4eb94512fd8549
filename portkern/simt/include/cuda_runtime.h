// What nvcc puts before every CUDA source: the language, the device's functions, the runtime API.
#pragma once

#ifndef SIMT_HOST_SOURCE  // which another compiler than nvcc would see
#ifndef __CUDACC__
#define __CUDACC__ 1
#endif
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 9
#define __CUDACC_VER_BUILD__ 0
#define __CUDACC_EXTENDED_LAMBDA__ 1
#define __CUDACC_RELAXED_CONSTEXPR__ 1
#endif
// __CUDA_ARCH__ is the build's to define (-D__CUDA_ARCH__=900): there is no separate device pass.

#include "cuda_runtime_api.h"
#include "simt/atomics.h"
#include "simt/core.h"
#include "simt/integer.h"
#include "simt/language.h"
#include "simt/loads.h"
#include "simt/math.h"
#include "simt/vectors.h"
#include "simt/warp.h"

#define __CUDA_RUNTIME_H__

// Programmatic dependent launch: here a launch begins when those before it are done, so that what a
// kernel waits for has been stored and what it triggers early changes nothing.
static inline void cudaGridDependencySynchronize() {}
static inline void cudaTriggerProgrammaticLaunchCompletion() {}
