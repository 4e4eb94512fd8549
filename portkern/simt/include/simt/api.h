// The host API that CUDA's and HIP's runtimes have in common, once. spellings.h gives it both
// names. Functions return an error code and keep it for last_error(); a launch is done when it
// returns, so streams and events order nothing and only their misuse is told.
#pragma once
#include "core.h"

namespace simt::api {

// The codes that are returned here: the numbers of cudaError and of hipError_t alike (errors.h).
enum Error : int {
    success = 0,
    invalid_value = 1,
    out_of_memory = 2,
    invalid_pitch = 12,
    invalid_symbol = 13,
    invalid_direction = 21,
    invalid_device = 101,
    unsupported_limit = 215,
    peer_unsupported = 217,
    invalid_handle = 400,
    too_many_blocks = 720,
    not_supported = 801,
};

enum class Space : uint8_t { unregistered, host, device, managed };  // cudaMemoryType's numbers
enum class Copy : uint8_t { host_to_host, to_device, to_host, on_device, any };  // MemcpyKind's

// ---- errors

// Of this host thread, and forget it. After a fault in a kernel every other call fails with it,
// until reset(); that is as on a device, but that there nothing resets it.
SIMT_API int last_error();
SIMT_API int peek_error();
SIMT_API const char* cuda_error_name(int error);
SIMT_API const char* hip_error_name(int error);
SIMT_API const char* error_text(int error);
// For a call that exists and is not modelled: reports SX409 and returns NotSupported.
SIMT_API int unsupported(const char* call, Site at);

// ---- memory: sizes and pitches in bytes

SIMT_API int allocate(void** p, size_t bytes, Space space, Site at);
SIMT_API int allocate_pitched(void** p, size_t* pitch, size_t width, size_t rows, Site at);
SIMT_API int release(void* p, Space space);
SIMT_API int copy(void* to, const void* from, size_t bytes, Copy kind, void* stream, Site at);
SIMT_API int copy_2d(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                     size_t rows, Copy kind, void* stream, Site at);
// `count` times the low `size` bytes of `value`; size is 1, 2 or 4.
SIMT_API int fill(void* p, unsigned value, size_t size, size_t count, void* stream, Site at);
SIMT_API int fill_2d(void* p, size_t pitch, int byte, size_t width, size_t rows, void* stream,
                     Site at);

struct Symbol {  // a __device__ or __constant__ variable
    const void* at;
    size_t bytes;
};
template <class T>
static inline Symbol symbol(const T& variable) {
    return {(const void*)&variable, sizeof(T)};
}
// The variable at an address, which the caller passed on as a pointer: its size is not known.
static inline Symbol symbol(const void* variable) { return {variable, (size_t)-1}; }
SIMT_API int symbol_address(void** p, Symbol symbol, Site at);
SIMT_API int copy_to_symbol(Symbol to, const void* from, size_t bytes, size_t offset, Copy kind,
                            void* stream, Site at);
SIMT_API int copy_from_symbol(void* to, Symbol from, size_t bytes, size_t offset, Copy kind,
                              void* stream, Site at);

struct Pointer {  // what is known of an address; nulls where it has no meaning there
    Space space;
    void* device;
    void* host;
};
SIMT_API int describe(const void* p, Pointer* out);
SIMT_API int device_pointer(void** device, void* host, Site at);
SIMT_API int memory_info(size_t* free, size_t* total);
SIMT_API int advise(const void* p, size_t bytes, const char* call, Site at);  // a hint: checked

// ---- streams and events

SIMT_API int stream_create(void** stream, unsigned flags, int priority);
SIMT_API int stream_destroy(void* stream);
SIMT_API int stream_synchronize(void* stream);
SIMT_API int stream_wait(void* stream, void* event);
SIMT_API int stream_flags(void* stream, unsigned* flags);
SIMT_API int stream_priority(void* stream, int* priority);
SIMT_API int host_function(void* stream, void (*function)(void*), void* data);

SIMT_API int event_create(void** event, unsigned flags);
SIMT_API int event_destroy(void* event);
SIMT_API int event_record(void* event, void* stream);
SIMT_API int event_synchronize(void* event);
SIMT_API int event_elapsed(float* milliseconds, void* from, void* to);

// ---- the device

struct Properties {  // the fields of cudaDeviceProp and hipDeviceProp_t that have a meaning here
    char name[256];
    struct Uuid { char bytes[16]; } uuid;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int clockRate;  // of clock64() here, in kHz; memoryClockRate and memoryBusWidth are 0
    size_t totalConstMem;
    int major, minor;
    size_t textureAlignment, texturePitchAlignment;
    int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated;
    int canMapHostMemory, computeMode, concurrentKernels, ECCEnabled;
    int pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing;
    int memoryClockRate, memoryBusWidth;
    int l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
    int hostNativeAtomicSupported, pageableMemoryAccess, concurrentManagedAccess;
    int computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch;
    size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
    int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int hostRegisterSupported, memoryPoolsSupported, clusterLaunch;
    char gcnArchName[256];                    // HIP's own
    size_t maxSharedMemoryPerMultiProcessor;  // HIP's own
};
SIMT_API int properties(Properties* out, int device);
SIMT_API int attribute(int* value, int number, int device, Site at);  // CUDA's number
SIMT_API int set_device(int device);
SIMT_API int peer_access(int device, int peer);  // of one device: refused
SIMT_API int synchronize();
SIMT_API int reset();  // frees all memory, forgets errors and kernels' attributes
constexpr int heap_limit = 2;  // cudaLimitMallocHeapSize
SIMT_API int set_limit(int limit, size_t value);
SIMT_API int get_limit(size_t* value, int limit);

// ---- kernels

enum FunctionAttribute : int { max_dynamic_shared = 8, shared_carveout = 9 };
SIMT_API int set_function_attribute(const void* kernel, int attribute, int value, Site at);
SIMT_API int max_dynamic_of(const void* kernel);  // bytes that a launch may ask for
SIMT_API const char* kernel_name(const void* kernel);

// The blocks of a kernel that are resident on one multiprocessor at once, from its threads and
// its dynamic shared memory. Registers and static shared memory are not known before a device
// compiler has run, and are taken not to limit.
SIMT_API int occupancy(int* blocks, const void* kernel, int threads, size_t dynamic);
// The largest block with the most resident threads; `dynamic(context, threads)` is its memory.
SIMT_API int best_block(int* grid, int* block, const void* kernel,
                        size_t (*dynamic)(void* context, int threads), void* context, int limit);

SIMT_API int check_cooperative(const Shape& shape, const void* kernel, Site at);
SIMT_API int launch_result();  // of the launch just made

template <class... P>
static inline void launch_values(void (*kernel)(P...), const Shape& shape, Site at,
                                 std::remove_cv_t<P>... values) {
    simt::launch(shape, kernel_name((const void*)kernel), [=] { kernel(values...); }, at);
}
template <class... P, size_t... I>
static inline void launch_packed(void (*kernel)(P...), const Shape& shape,
                                 [[maybe_unused]] void** arguments, Site at,
                                 std::index_sequence<I...>) {
    launch_values(kernel, shape, at, *static_cast<std::remove_cv_t<P>*>(arguments[I])...);
}
// `arguments[i]` points to the kernel's i-th argument, of exactly its type.
template <class... P>
static inline int launch_kernel(void (*kernel)(P...), Shape shape, void** arguments,
                                bool cooperative, Site at) {
    shape.cooperative = cooperative;
    if (cooperative)
        if (const int error = check_cooperative(shape, (const void*)kernel, at)) return error;
    launch_packed(kernel, shape, arguments, at, std::index_sequence_for<P...>());
    return launch_result();
}

template <class F>
static inline int best_block_with(int* grid, int* block, const void* kernel, F& bytes, int limit) {
    return best_block(
        grid, block, kernel,
        [](void* context, int threads) { return (size_t)(*static_cast<F*>(context))(threads); },
        &bytes, limit);
}

}  // namespace simt::api
