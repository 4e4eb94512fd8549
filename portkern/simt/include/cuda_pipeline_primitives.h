// Asynchronous copies to shared memory: the queue of cp.async under its C names.
#pragma once
#include "simt/cuda_only.h"
#include "simt/ptx_memory.h"

// Copies `size_and_align` bytes (4, 8 or 16), the last `zfill` of them zeros.
__attribute__((always_inline)) static inline void __pipeline_memcpy_async(
    void* to, const void* from, size_t size_and_align, size_t zfill = 0, SIMT_AT) {
    const int bytes = (int)(size_and_align - (zfill < size_and_align ? zfill : size_and_align));
    if (!simt::is_shared(to)) {
        simt::finding(102, at, "__pipeline_memcpy_async to %p, which is not shared memory", to);
        return;
    }
    auto* target = (const char*)to;
    auto* source = (const char*)from;
    switch (size_and_align) {
        case 4: return simt::ptx::cp_async<4>(target, source, bytes, false, at);
        case 8: return simt::ptx::cp_async<8>(target, source, bytes, false, at);
        case 16: return simt::ptx::cp_async<16>(target, source, bytes, false, at);
        default: simt::fatal(408, at, "__pipeline_memcpy_async of %zu bytes", size_and_align);
    }
}
static inline void __pipeline_commit() { simt::ptx::cp_async_commit(); }
// All but the `prior` last commits are done; more than 8 count as 8.
static inline void __pipeline_wait_prior(size_t prior) {
    simt::ptx::cp_async_wait(prior < 8 ? (unsigned)prior : 8);
}
