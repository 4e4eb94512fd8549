// Atomic additions for every type that AT_DISPATCH gives.
#pragma once
#include "../../c10/util/Half.h"
#include "../../cuda_runtime.h"

template <class T>
static inline T gpuAtomicAdd(T* address, T value) {
    return atomicAdd(address, value);
}
static inline int64_t gpuAtomicAdd(int64_t* address, int64_t value) {
    return (int64_t)atomicAdd((unsigned long long*)address, (unsigned long long)value);
}
static inline c10::Half gpuAtomicAdd(c10::Half* address, c10::Half value) {
    return atomicAdd((__half*)address, (__half)value);
}
static inline c10::BFloat16 gpuAtomicAdd(c10::BFloat16* address, c10::BFloat16 value) {
    return atomicAdd((__nv_bfloat16*)address, (__nv_bfloat16)value);
}
template <class T, class Value>
static inline void gpuAtomicAddNoReturn(T* address, Value value) {
    (void)gpuAtomicAdd(address, (T)value);
}
