// what: a tile is sized for the largest device and not for the one it runs on
// expect: SX402 | SX401 | error
// widths: 32
// target: sm_86
// sanitizer: none
// group: launch
#include <cuda_runtime.h>

#include "check.h"

__global__ void reverse_tiles(const int* x, int* y, int n, int tile) {
    extern __shared__ int s[];
    for (int first = blockIdx.x * tile; first < n; first += gridDim.x * tile) {
        const int held = min(tile, n - first);
        for (int i = threadIdx.x; i < held; i += blockDim.x) s[i] = x[first + i];
        __syncthreads();
        for (int i = threadIdx.x; i < held; i += blockDim.x) y[first + i] = s[held - 1 - i];
        __syncthreads();
    }
}

int main() {
    int most = 0;
    CHECK_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
#ifdef BUG
    const int bytes = 160 * 1024;
#else
    const int bytes = std::min(160 * 1024, most);
#endif
    const int tile = bytes / int(sizeof(int)), n = tile + 500;
    const auto x = numbers<int>(n, 9973);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) {
        const int first = i / tile * tile;
        want[i] = x[first + std::min(first + tile, n) - 1 - i];
    }
    int* y = device_array<int>(n);
    CHECK_CUDA(
        cudaFuncSetAttribute(reverse_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    reverse_tiles<<<2, 256, bytes>>>(to_device(x), y, n, tile);
    finish();
    return check(to_host(y, n), want);
}
