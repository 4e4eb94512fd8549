// what: shared counters are raised by atomicAdd_block, which HIP does not have
// expect: build
// widths: 32 64
// pitfall: 36
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

constexpr int bins = 32;

__global__ void digits(const unsigned* keys, int* counts, int shift, int n) {
    __shared__ int local[bins];
    if (threadIdx.x < bins) local[threadIdx.x] = 0;
    __syncthreads();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int* bin = &local[keys[i] >> shift & (bins - 1)];
#ifdef BUG
        atomicAdd_block(bin, 1);
#else
        atomicAdd(bin, 1);
#endif
    }
    __syncthreads();
    if (threadIdx.x < bins) counts[blockIdx.x * bins + threadIdx.x] = local[threadIdx.x];
}

int main() {
    constexpr int n = 600, block = 128, blocks = (n + block - 1) / block, shift = 3;
    const auto keys = numbers<unsigned>(n, 1021);
    std::vector<int> want(blocks * bins);
    for (int i = 0; i < n; ++i) ++want[i / block * bins + (keys[i] >> shift & (bins - 1))];

    int* counts = device_array<int>(blocks * bins);
    digits<<<blocks, block>>>(to_device(keys), counts, shift, n);
    finish();
    return check(to_host(counts, blocks * bins), want);
}
