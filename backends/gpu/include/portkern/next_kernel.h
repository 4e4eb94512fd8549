// A kernel that goes on with what the one before it in its stream has left, and does nothing else. On Hopper
// its blocks, and their instructions, are brought in while that one still runs.
#pragma once
#include <portkern/portable.h>

// In the kernel before: as soon as all of its blocks have come here, or are done, the next one's may begin.
__device__ __forceinline__ void let_next_begin() {
#ifdef PORTKERN_HOPPER
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// First in the next one: all that the one before wrote is there then.
__device__ __forceinline__ void wait_for_previous() {
#ifdef PORTKERN_HOPPER
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// After another of the same call alone: of what came before that one nobody waits for the end otherwise. With so
// many bytes of dynamic shared memory.
template <class... P, class... A>
inline void launch_next_with(int bytes, void (*kernel)(P...), int64_t blocks, unsigned threads, cudaStream_t stream,
                             const A&... given) {
#ifdef PORTKERN_HOPPER
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, P(given)...);
#else
    kernel<<<(unsigned)blocks, threads, bytes, stream>>>(P(given)...);
#endif
}

template <class... P, class... A>
inline void launch_next(void (*kernel)(P...), int64_t blocks, unsigned threads, cudaStream_t stream,
                        const A&... given) {
    launch_next_with(0, kernel, blocks, threads, stream, given...);
}
