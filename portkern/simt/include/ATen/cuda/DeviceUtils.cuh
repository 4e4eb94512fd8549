// Shuffles and votes under PyTorch's names, for CUDA's masks and HIP's lanes alike.
#pragma once
#include "../../c10/macros/Macros.h"
#include "../../c10/util/Half.h"
#include "../../cuda_runtime.h"

namespace simt {
template <class T>
static inline auto torch_shuffled(T value) {
    if constexpr (std::is_class<T>::value) return (float)value;  // exact, and back
    else return value;
}
}  // namespace simt
// On AMD's GPUs of the lanes that are there: PyTorch's masks have 32 bits and are CUDA's alone.
#if SIMT_HIP
#define SIMT_TORCH_SHUFFLE(NAME, FUNCTION, T)                                                     \
    template <class V>                                                                            \
    static inline V NAME(V value, T by, int width = warpSize, unsigned = 0xffffffff, SIMT_AT) {   \
        return (V)FUNCTION(simt::torch_shuffled(value), by, width, at);                           \
    }
SIMT_TORCH_SHUFFLE(WARP_SHFL, __shfl, int)
SIMT_TORCH_SHUFFLE(WARP_SHFL_XOR, __shfl_xor, int)
SIMT_TORCH_SHUFFLE(WARP_SHFL_UP, __shfl_up, unsigned)
SIMT_TORCH_SHUFFLE(WARP_SHFL_DOWN, __shfl_down, unsigned)
static inline unsigned long long WARP_BALLOT(int predicate, SIMT_AT) {
    return __ballot(predicate, at);
}
static inline void WARP_SYNC(unsigned = 0xffffffff) {}
#else
#define SIMT_TORCH_SHUFFLE(NAME, FUNCTION, T)                                                     \
    template <class V>                                                                            \
    static inline V NAME(V value, T by, int width = warpSize, unsigned mask = 0xffffffff,         \
                         SIMT_AT) {                                                               \
        return (V)FUNCTION(mask, simt::torch_shuffled(value), by, width, at);                     \
    }
SIMT_TORCH_SHUFFLE(WARP_SHFL, __shfl_sync, int)
SIMT_TORCH_SHUFFLE(WARP_SHFL_XOR, __shfl_xor_sync, int)
SIMT_TORCH_SHUFFLE(WARP_SHFL_UP, __shfl_up_sync, unsigned)
SIMT_TORCH_SHUFFLE(WARP_SHFL_DOWN, __shfl_down_sync, unsigned)
static inline unsigned WARP_BALLOT(int predicate, unsigned mask = 0xffffffff, SIMT_AT) {
    return __ballot_sync(mask, predicate, at);
}
static inline void WARP_SYNC(unsigned mask = 0xffffffff, SIMT_AT) {
    simt::warp_barrier(simt::cuda_mask(mask), at);
}
#endif
#undef SIMT_TORCH_SHUFFLE
