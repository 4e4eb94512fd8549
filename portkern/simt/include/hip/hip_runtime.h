// What hipcc's programs include: HIP's language, the device's functions, the runtime API.
#pragma once

#ifndef SIMT_HIP
#define SIMT_HIP 1
#endif
#ifndef SIMT_HOST_SOURCE
#define __HIP__ 1
#define __HIPCC__ 1
#endif
#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__ 1
#endif
#if defined(SIMT_CONSTEXPR_WARP) && !defined(__AMDGCN_WAVEFRONT_SIZE)
#define __AMDGCN_WAVEFRONT_SIZE SIMT_CONSTEXPR_WARP
#define __AMDGCN_WAVEFRONT_SIZE__ SIMT_CONSTEXPR_WARP
#endif

#include "../simt/atomics.h"
#include "../simt/core.h"
#include "../simt/hip_vectors.h"
#include "../simt/integer.h"
#include "../simt/language.h"
#include "../simt/loads.h"
#include "../simt/math.h"
#include "../simt/vectors.h"
#include "../simt/warp.h"
#include "hip_runtime_api.h"

// The names from before threadIdx and its like were HIP's too.
#define hipThreadIdx_x threadIdx.x
#define hipThreadIdx_y threadIdx.y
#define hipThreadIdx_z threadIdx.z
#define hipBlockIdx_x blockIdx.x
#define hipBlockIdx_y blockIdx.y
#define hipBlockIdx_z blockIdx.z
#define hipBlockDim_x blockDim.x
#define hipBlockDim_y blockDim.y
#define hipBlockDim_z blockDim.z
#define hipGridDim_x gridDim.x
#define hipGridDim_y gridDim.y
#define hipGridDim_z gridDim.z

// Dynamic shared memory, for code that the rewriter has not turned into the same.
#define HIP_DYNAMIC_SHARED(type, name) type* name = ::simt::dynamic_shared<type>();
#define HIP_DYNAMIC_SHARED_ATTRIBUTE

#include "../simt/hip_directed.h"
