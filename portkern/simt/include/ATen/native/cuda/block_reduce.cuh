// PyTorch's sums over a warp and a block: the first lane, and the first thread, have the result.
#pragma once
#include "../../cuda/DeviceUtils.cuh"

namespace at::native::cuda_utils {

constexpr int kCUDABlockReduceNumThreads = 512, kCUDABlockReduceMaxThreads = 1024;

template <class T>
static inline T WarpReduceSum(T value, SIMT_AT) {
    for (int by = warpSize / 2; by > 0; by /= 2)
        value += WARP_SHFL_DOWN(value, by, warpSize, 0xffffffff, at);
    return value;
}
template <class T, class Op>
static inline T WarpReduce(T value, const Op& op, SIMT_AT) {
    for (int by = warpSize / 2; by > 0; by /= 2)
        value = op.combine(value, op.warp_shfl_down(value, by));
    return value;
}
// `shared` has a value for each warp.
template <class T>
static inline T BlockReduceSum(T value, T* shared, SIMT_AT) {
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    value = WarpReduceSum(value, at);
    simt::block_barrier(at);
    if (lane == 0) shared[warp] = value;
    simt::block_barrier(at);
    value = (int)threadIdx.x < (int)blockDim.x / warpSize ? shared[lane] : T(0);
    if (warp == 0) value = WarpReduceSum(value, at);
    return value;
}

}  // namespace at::native::cuda_utils
