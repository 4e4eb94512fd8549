// HIP's runtime API on the executor, as of ROCm 6.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../simt/api.h"
#include "../simt/attributes.h"
#include "../simt/errors.h"

#define HIP_VERSION_MAJOR 6
#define HIP_VERSION_MINOR 4
#define HIP_VERSION_PATCH 0
#define HIP_VERSION 60400000

#define SIMT_HIP_ERROR(name, number) hip##name = number,
typedef enum hipError_t {
    SIMT_HIP_ERRORS(SIMT_HIP_ERROR) SIMT_HIP_ERROR_ALIASES(SIMT_HIP_ERROR)
} hipError_t;
#undef SIMT_HIP_ERROR

#define SIMT_N(name) hip##name
#define SIMT_STREAM ihipStream_t
#define SIMT_EVENT ihipEvent_t
#define SIMT_VERSION HIP_VERSION
#include "../simt/spellings.h"
#include "../simt/pools.h"
#define SIMT_MAKE(name) make_hip##name
#define SIMT_HIP_PARAMS
#include "../simt/graph_spellings.h"
#undef SIMT_MAKE
#undef SIMT_HIP_PARAMS
#undef SIMT_N
#undef SIMT_STREAM
#undef SIMT_EVENT
#undef SIMT_VERSION

#define hipStreamDefault 0x00
enum hipComputeMode {
    hipComputeModeDefault = 0,
    hipComputeModeExclusive = 1,
    hipComputeModeProhibited = 2,
    hipComputeModeExclusiveProcess = 3,
};
typedef hipFuncCache hipFuncCache_t;
typedef hipStreamCaptureMode hipStreamCaptureMode_t;
typedef void* hipDeviceptr_t;
typedef int hipDevice_t;
typedef void (*hipHostFn_t)(void* data);

#define hipStreamLegacy ((hipStream_t)1)
#define hipStreamPerThread ((hipStream_t)2)
#define HIP_SYMBOL(variable) variable
#define HIP_KERNEL_NAME(...) __VA_ARGS__

static inline const char* hipGetErrorName(hipError_t error) {
    return ::simt::api::hip_error_name((int)error);
}
static inline hipError_t hipExtGetLastError() { return hipGetLastError(); }
static inline hipError_t hipInit(unsigned) { return hipSuccess; }

struct hipDeviceProp_t : ::simt::api::Properties {};
static inline hipError_t hipGetDeviceProperties(hipDeviceProp_t* out, int device) {
    return (hipError_t)::simt::api::properties(out, device);
}

#define SIMT_HIP_ATTRIBUTE(name, number, hip_name, hip_number)                                    \
    hipDeviceAttribute##hip_name = hip_number,
enum hipDeviceAttribute_t {
    SIMT_ATTRIBUTES(SIMT_HIP_ATTRIBUTE) SIMT_UNKNOWN_ATTRIBUTES(SIMT_HIP_ATTRIBUTE)
    hipDeviceAttributeMaxSharedMemoryPerMultiprocessor = 10002,
};
#undef SIMT_HIP_ATTRIBUTE

static inline hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute,
                                               int device, SIMT_AT) {
    int number = 81;  // of hipDeviceAttributeMaxSharedMemoryPerMultiprocessor
    switch ((int)attribute) {
#define SIMT_HIP_ATTRIBUTE(name, cuda_number, hip_name, hip_number)                               \
    case hip_number: number = cuda_number; break;
        SIMT_ATTRIBUTES(SIMT_HIP_ATTRIBUTE)
        SIMT_UNKNOWN_ATTRIBUTES(SIMT_HIP_ATTRIBUTE)
#undef SIMT_HIP_ATTRIBUTE
    }
    return (hipError_t)::simt::api::attribute(value, number, device, at);
}

enum hipLimit_t {
    hipLimitStackSize = 0,
    hipLimitPrintfFifoSize = 1,
    hipLimitMallocHeapSize = 2,
};
static inline hipError_t hipDeviceSetLimit(hipLimit_t limit, size_t value) {
    return (hipError_t)::simt::api::set_limit(limit, value);
}
static inline hipError_t hipDeviceGetLimit(size_t* value, hipLimit_t limit) {
    return (hipError_t)::simt::api::get_limit(value, limit);
}

struct hipPointerAttribute_t {
    hipMemoryType type;
    int device;
    void* devicePointer;
    void* hostPointer;
    int isManaged;
    unsigned allocationFlags;
};
static inline hipError_t hipPointerGetAttributes(hipPointerAttribute_t* out, const void* p) {
    ::simt::api::Pointer found;
    const int error = ::simt::api::describe(p, &found);
    const bool managed = found.space == ::simt::api::Space::managed;
    *out = {(hipMemoryType)found.space, 0, found.device, found.host, managed, 0};
    return (hipError_t)error;
}

// ---- HIP's own spellings of memory

enum : unsigned {
    hipHostMallocDefault = 0,
    hipHostMallocPortable = 1,
    hipHostMallocMapped = 2,
    hipHostMallocWriteCombined = 4,
    hipHostMallocNumaUser = 0x20000000,
    hipHostMallocCoherent = 0x40000000,
    hipHostMallocNonCoherent = 0x80000000,
};
template <class T>
static inline hipError_t hipHostMalloc(T** p, size_t bytes, unsigned = hipHostMallocDefault,
                                       SIMT_AT) {
    return (hipError_t)::simt::api::allocate((void**)(void*)p, bytes, ::simt::api::Space::host, at);
}
static inline hipError_t hipHostFree(void* p) { return hipFreeHost(p); }

static inline hipError_t hipMemcpyWithStream(void* to, const void* from, size_t bytes,
                                             hipMemcpyKind kind, hipStream_t stream, SIMT_AT) {
    return hipMemcpyAsync(to, from, bytes, kind, stream, at);
}
static inline hipError_t hipMemcpyHtoD(hipDeviceptr_t to, const void* from, size_t bytes, SIMT_AT) {
    return hipMemcpy(to, from, bytes, hipMemcpyHostToDevice, at);
}
static inline hipError_t hipMemcpyDtoH(void* to, hipDeviceptr_t from, size_t bytes, SIMT_AT) {
    return hipMemcpy(to, from, bytes, hipMemcpyDeviceToHost, at);
}
static inline hipError_t hipMemcpyDtoD(hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes,
                                       SIMT_AT) {
    return hipMemcpy(to, from, bytes, hipMemcpyDeviceToDevice, at);
}
static inline hipError_t hipMemsetD8(hipDeviceptr_t to, unsigned char value, size_t count,
                                     SIMT_AT) {
    return (hipError_t)::simt::api::fill(to, value, 1, count, nullptr, at);
}
static inline hipError_t hipMemsetD16(hipDeviceptr_t to, unsigned short value, size_t count,
                                      SIMT_AT) {
    return (hipError_t)::simt::api::fill(to, value, 2, count, nullptr, at);
}
static inline hipError_t hipMemsetD32(hipDeviceptr_t to, int value, size_t count, SIMT_AT) {
    return (hipError_t)::simt::api::fill(to, (unsigned)value, 4, count, nullptr, at);
}

typedef void (*hipStreamCallback_t)(hipStream_t stream, hipError_t status, void* data);
static inline hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t function,
                                              void* data, unsigned) {
    const hipError_t status = hipStreamSynchronize(stream);
    function(stream, status, data);
    return status;
}
