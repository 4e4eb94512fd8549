// Shared by the seeded-bug cases: device buffers, exact inputs, and the comparison that decides.
// A program exits with 0 when its result is right, 1 when it is wrong, 2 when an API call fails.
// Buffers live until the program ends: a case frees only what its defect is about.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#ifdef __HIP_PLATFORM_AMD__
#include <hip/hip_runtime.h>
#define RUNTIME(name) hip##name
#else
#include <cuda_runtime.h>
#define RUNTIME(name) cuda##name
#endif

inline void require(RUNTIME(Error_t) status, const char* call, int line) {
    if (status == RUNTIME(Success)) return;
    std::fprintf(stderr, "line %d: %s: %s\n", line, call, RUNTIME(GetErrorString)(status));
    std::exit(2);
}

#define CHECK_CUDA(...) require((__VA_ARGS__), #__VA_ARGS__, __LINE__)
#define CHECK_HIP CHECK_CUDA

// After a launch: its own error first, then those of the run.
inline void finish() {
    CHECK_CUDA(RUNTIME(GetLastError)());
    CHECK_CUDA(RUNTIME(DeviceSynchronize)());
}

// Whole numbers below `range` (a prime keeps neighbours apart), the same in every run; float adds
// up to 10^5 of them exactly, in any order.
template <class T>
std::vector<T> numbers(size_t n, size_t range = 101) {
    std::vector<T> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = T((i * 37 + 11) % range);
    return values;
}

template <class T>
T* device_array(size_t n) {  // holds nothing yet
    void* data = nullptr;
    CHECK_CUDA(RUNTIME(Malloc)(&data, n * sizeof(T)));
    return static_cast<T*>(data);
}

template <class T>
T* device_zeros(size_t n) {
    T* data = device_array<T>(n);
    CHECK_CUDA(RUNTIME(Memset)(data, 0, n * sizeof(T)));
    return data;
}

template <class T>
T* to_device(const std::vector<T>& host) {
    T* data = device_array<T>(host.size());
    const size_t bytes = host.size() * sizeof(T);
    CHECK_CUDA(RUNTIME(Memcpy)(data, host.data(), bytes, RUNTIME(MemcpyHostToDevice)));
    return data;
}

template <class T>
std::vector<T> to_host(const T* device, size_t n) {
    std::vector<T> host(n);
    const size_t bytes = n * sizeof(T);
    CHECK_CUDA(RUNTIME(Memcpy)(host.data(), device, bytes, RUNTIME(MemcpyDeviceToHost)));
    return host;
}

// Lanes of a warp on this device, asked as a host program must ask it.
inline int lanes_per_warp() {
    int lanes = 0;
#ifdef __HIP_PLATFORM_AMD__
    CHECK_HIP(hipDeviceGetAttribute(&lanes, hipDeviceAttributeWarpSize, 0));
#else
    CHECK_CUDA(cudaDeviceGetAttribute(&lanes, cudaDevAttrWarpSize, 0));
#endif
    return lanes;
}

// 0 when all elements agree within `relative` of what is wanted; otherwise says where and 1.
template <class T>
int check(const std::vector<T>& got, const std::vector<T>& want, double relative = 0) {
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < want.size(); ++i) {
        const double error = std::fabs(double(got[i]) - double(want[i]));
        if (error <= relative * std::fabs(double(want[i]))) continue;  // false for a NaN
        if (wrong++ == 0) first = i;
    }
    if (wrong == 0) return 0;
    std::fprintf(stderr, "element %zu is %g, not %g (%zu of %zu differ)\n", first,
                 double(got[first]), double(want[first]), wrong, want.size());
    return 1;
}
