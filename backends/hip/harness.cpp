// The part of HIP's runtime that a kernel's host code calls, for a process without a GPU: launches
// and whatever concerns the device's memory go to whoever opened the library.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

struct dim3 {
    uint32_t x, y, z;
};
using Launch = int (*)(const char* name, const dim3* grid, const dim3* block, void** arguments,
                       size_t dynamic_lds);
using Allocate = void* (*)(size_t bytes);
using Release = int (*)(void* address);
using Copy = int (*)(void* to, const void* from, size_t bytes);
using Fill = int (*)(void* to, int value, size_t bytes);

namespace {

enum Error { success = 0, invalid_value = 1, out_of_memory = 2 };

Launch launch;
Allocate allocates;
Release releases;
Copy copies;
Fill fills;
int multiprocessors = 1;
thread_local int last_error;

std::map<const void*, std::string>& kernels() {
    static std::map<const void*, std::string> all;
    return all;
}

struct Configuration {
    dim3 grid, block;
    size_t dynamic_lds;
    void* stream;
};
thread_local std::vector<Configuration> configurations;

int kept(int error) {
    if (error) last_error = error;
    return error;
}

int allocate(void** to, size_t bytes) {
    *to = nullptr;
    if (!bytes) return kept(success);
    *to = allocates(bytes);
    return kept(*to ? success : out_of_memory);
}

int release(void* address) { return address ? kept(releases(address)) : success; }

}  // namespace

extern "C" {

void portkern_attach(Launch to_launch, Allocate to_allocate, Release to_release, Copy to_copy,
                     Fill to_fill, int count) {
    launch = to_launch, allocates = to_allocate, releases = to_release;
    copies = to_copy, fills = to_fill, multiprocessors = count;
}

char portkern_fatbin[64];

void** __hipRegisterFatBinary(const void*) {
    static void* handle;
    return &handle;
}
void __hipUnregisterFatBinary(void**) {}
void __hipRegisterFunction(void**, const void* host, char*, const char* name, unsigned, void*,
                           void*, void*, void*, int*) {
    kernels()[host] = name;
}
void __hipRegisterVar(void**, void*, char*, char*, int, size_t, int, int) {}

int __hipPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic_lds, void* stream) {
    configurations.push_back({grid, block, dynamic_lds, stream});
    return success;
}
int __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* dynamic_lds, void** stream) {
    if (configurations.empty()) return kept(invalid_value);
    const Configuration c = configurations.back();
    configurations.pop_back();
    *grid = c.grid, *block = c.block, *dynamic_lds = c.dynamic_lds, *stream = c.stream;
    return success;
}

int hipLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, size_t dynamic_lds,
                    void*) {
    const auto found = kernels().find(host);
    if (found == kernels().end()) return kept(invalid_value);
    return kept(launch(found->second.c_str(), &grid, &block, arguments, dynamic_lds));
}

int hipGetLastError() {
    const int error = last_error;
    last_error = success;
    return error;
}
int hipPeekAtLastError() { return last_error; }
const char* hipGetErrorString(int) { return "an error of the launch"; }
const char* hipGetErrorName(int) { return "hipErrorUnknown"; }

int hipGetDevice(int* device) { return *device = 0, success; }
int hipDeviceGetAttribute(int* value, int, int) { return *value = multiprocessors, success; }
int hipFuncSetAttribute(const void*, int, int) { return success; }
int hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
    return *blocks = 1, success;
}

int hipMalloc(void** to, size_t bytes) { return allocate(to, bytes); }
int hipMallocAsync(void** to, size_t bytes, void*) { return allocate(to, bytes); }
int hipFree(void* address) { return release(address); }
int hipFreeAsync(void* address, void*) { return release(address); }
int hipDeviceGetDefaultMemPool(void** pool, int) { return *pool = nullptr, success; }
int hipMemPoolSetAttribute(void*, int, void*) { return success; }

int hipMemset(void* to, int value, size_t bytes) {
    return bytes ? kept(fills(to, value, bytes)) : success;
}
int hipMemsetAsync(void* to, int value, size_t bytes, void*) { return hipMemset(to, value, bytes); }
int hipMemcpy(void* to, const void* from, size_t bytes, int) {
    return bytes ? kept(copies(to, from, bytes)) : success;
}
int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void*) {
    return hipMemcpy(to, from, bytes, kind);
}
int hipDeviceSynchronize() { return success; }
int hipStreamSynchronize(void*) { return success; }
}
