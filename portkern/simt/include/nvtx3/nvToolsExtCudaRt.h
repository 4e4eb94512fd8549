// NVTX names for the runtime's objects: nobody shows them here.
#pragma once
#include "../driver_types.h"
#include "nvToolsExt.h"

static inline void nvtxNameCudaDeviceA(int, const char*) {}
static inline void nvtxNameCudaStreamA(cudaStream_t, const char*) {}
static inline void nvtxNameCudaEventA(cudaEvent_t, const char*) {}
#define nvtxNameCudaDevice nvtxNameCudaDeviceA
#define nvtxNameCudaStream nvtxNameCudaStreamA
#define nvtxNameCudaEvent nvtxNameCudaEventA
