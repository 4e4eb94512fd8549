// what: a helper that contains a barrier is called by the threads whose item is valid only
// expect: SX301 | SX302
// widths: 32 64
// pitfall: 14
// sanitizer: synccheck
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128;

__device__ int block_rank(bool flag) {  // of a thread among those whose flag is set
    __shared__ int before[block];
    before[threadIdx.x] = flag;
    __syncthreads();
    int rank = 0;
    for (unsigned k = 0; k < threadIdx.x; ++k) rank += before[k];
    return rank;
}

__global__ void keep_valid(const int* x, int* out, int* counts) {
    const int value = x[blockIdx.x * block + threadIdx.x];
    const bool valid = value % 3 != 0;
#ifdef BUG
    const int rank = valid ? block_rank(true) : 0;
#else
    const int rank = block_rank(valid);
#endif
    if (!valid) return;
    out[blockIdx.x * block + rank] = value;
    atomicAdd(&counts[blockIdx.x], 1);
}

int main() {
    constexpr int blocks = 3, n = blocks * block;
    const auto x = numbers<int>(n);
    std::vector<int> want(n, -1), counts(blocks);
    for (int i = 0; i < n; ++i)
        if (x[i] % 3 != 0) want[i / block * block + counts[i / block]++] = x[i];

    int *out = to_device(std::vector<int>(n, -1)), *kept = device_zeros<int>(blocks);
    keep_valid<<<blocks, block>>>(to_device(x), out, kept);
    finish();
    return check(to_host(out, n), want) | check(to_host(kept, blocks), counts);
}
