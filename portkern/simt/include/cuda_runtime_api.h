// CUDA's runtime API on the executor. The version is the last of 12, whose structures programs of
// both 11 and 13 compile with more often than not.
#pragma once
#include <limits.h>
#include <time.h>

#include <cstddef>
#include <cstdint>

#include "simt/api.h"
#include "simt/attributes.h"
#include "simt/errors.h"

// By which programs tell which of the vendor's headers they have included.
#define __CUDA_RUNTIME_API_H__
#define __DRIVER_TYPES_H__
#define __DEVICE_TYPES_H__
#define __HOST_DEFINES_H__
#define __VECTOR_TYPES_H__
#define CUDART_VERSION 12090
#define CUDART_CB
#define CUDARTAPI

#define SIMT_CUDA_ERROR(name, number) cuda##name = number,
enum cudaError { SIMT_CUDA_ERRORS(SIMT_CUDA_ERROR) };
#undef SIMT_CUDA_ERROR
typedef enum cudaError cudaError_t;

#define SIMT_N(name) cuda##name
#define SIMT_STREAM CUstream_st
#define SIMT_EVENT CUevent_st
#define SIMT_VERSION CUDART_VERSION
#include "simt/spellings.h"
#include "simt/pools.h"
// In HIP only PyTorch's headers come here, and sources call names of graphs by HIP's with macros.
#if !SIMT_HIP
#define SIMT_MAKE(name) make_cuda##name
#include "simt/graph_spellings.h"
#undef SIMT_MAKE
#endif
#undef SIMT_N
#undef SIMT_STREAM
#undef SIMT_EVENT
#undef SIMT_VERSION

typedef enum cudaMemcpyKind cudaMemcpyKind_t;
typedef cudaLaunchAttributeID cudaStreamAttrID;
#define cudaStreamAttributeAccessPolicyWindow cudaLaunchAttributeAccessPolicyWindow
#define cudaStreamAttributeSynchronizationPolicy cudaLaunchAttributeSynchronizationPolicy
#define cudaStreamAttributePriority cudaLaunchAttributePriority
typedef cudaLaunchAttributeValue cudaStreamAttrValue;

static const cudaStream_t cudaStreamLegacy = (cudaStream_t)1;
static const cudaStream_t cudaStreamPerThread = (cudaStream_t)2;

enum cudaSharedCarveout {
    cudaSharedmemCarveoutDefault = -1,
    cudaSharedmemCarveoutMaxL1 = 0,
    cudaSharedmemCarveoutMaxShared = 100,
};
enum cudaComputeMode {
    cudaComputeModeDefault = 0,
    cudaComputeModeExclusive = 1,
    cudaComputeModeProhibited = 2,
    cudaComputeModeExclusiveProcess = 3,
};
#define cudaStreamDefault 0x00

static inline const char* cudaGetErrorName(cudaError_t error) {
    return ::simt::api::cuda_error_name((int)error);
}

struct cudaDeviceProp : ::simt::api::Properties {};
typedef ::simt::api::Properties::Uuid cudaUUID_t;

static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
    return (cudaError_t)::simt::api::properties(out, device);
}

#define SIMT_CUDA_ATTRIBUTE(name, number, hip_name, hip_number) cudaDevAttr##name = number,
enum cudaDeviceAttr {
    SIMT_ATTRIBUTES(SIMT_CUDA_ATTRIBUTE) SIMT_UNKNOWN_ATTRIBUTES(SIMT_CUDA_ATTRIBUTE)
};
#undef SIMT_CUDA_ATTRIBUTE

static inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device,
                                                 SIMT_AT) {
    return (cudaError_t)::simt::api::attribute(value, attribute, device, at);
}

enum cudaLimit {
    cudaLimitStackSize = 0,
    cudaLimitPrintfFifoSize = 1,
    cudaLimitMallocHeapSize = 2,
    cudaLimitDevRuntimeSyncDepth = 3,
    cudaLimitDevRuntimePendingLaunchCount = 4,
    cudaLimitMaxL2FetchGranularity = 5,
    cudaLimitPersistingL2CacheSize = 6,
};
static inline cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
    return (cudaError_t)::simt::api::set_limit(limit, value);
}
static inline cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
    return (cudaError_t)::simt::api::get_limit(value, limit);
}

struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void* devicePointer;
    void* hostPointer;
};
static inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
    ::simt::api::Pointer found;
    const int error = ::simt::api::describe(p, &found);
    const bool known = found.space != ::simt::api::Space::unregistered;
    *out = {(cudaMemoryType)found.space, known ? 0 : cudaInvalidDeviceId, found.device, found.host};
    return (cudaError_t)error;
}

// Since CUDA 13 a place in memory is a structure, before it was a device's number.
static inline cudaError_t cudaMemAdvise(const void* p, size_t bytes, cudaMemoryAdvise advice,
                                        cudaMemLocation where, SIMT_AT) {
    return cudaMemAdvise(p, bytes, advice, where.id, at);
}
static inline cudaError_t cudaMemPrefetchAsync(const void* p, size_t bytes, cudaMemLocation where,
                                               unsigned, cudaStream_t stream = nullptr, SIMT_AT) {
    return cudaMemPrefetchAsync(p, bytes, where.id, stream, at);
}

typedef void (*cudaHostFn_t)(void* data);
typedef void (*cudaStreamCallback_t)(cudaStream_t stream, cudaError_t status, void* data);
static inline cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function,
                                                void* data, unsigned) {
    const cudaError_t status = cudaStreamSynchronize(stream);
    function(stream, status, data);
    return status;
}


enum cudaDeviceP2PAttr {
    cudaDevP2PAttrPerformanceRank = 1,
    cudaDevP2PAttrAccessSupported = 2,
    cudaDevP2PAttrNativeAtomicSupported = 3,
    cudaDevP2PAttrCudaArrayAccessSupported = 4,
};
static inline cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int, int) {
    *value = 0;
    return (cudaError_t)::simt::api::invalid_device;  // there are no two
}
// What may stay in the L2 cache: a hint.
enum cudaAccessProperty {
    cudaAccessPropertyNormal = 0,
    cudaAccessPropertyStreaming = 1,
    cudaAccessPropertyPersisting = 2,
};
static inline cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }
struct cudaIpcMemHandle_t { char reserved[64]; };
struct cudaIpcEventHandle_t { char reserved[64]; };
static inline cudaError_t cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
static inline cudaError_t cudaThreadExit() { return cudaDeviceReset(); }
