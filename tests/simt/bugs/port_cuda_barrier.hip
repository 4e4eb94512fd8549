// what: an arrive-wait barrier from libcu++ splits the synchronisation of a block
// expect: build SX002
// widths: 32 64
// pitfall: 18
// sanitizer: none
// group: porting
#ifdef BUG
#include <cuda/barrier>
#endif
#include <hip/hip_runtime.h>

#include "check.h"

constexpr int block = 128;

__global__ void pairwise_max(const int* x, int* y) {
    __shared__ int s[block];
    const int t = threadIdx.x;
#ifdef BUG
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    if (t == 0) init(&barrier, block);
    __syncthreads();
    s[t] = x[blockIdx.x * block + t];
    barrier.arrive_and_wait();
#else
    s[t] = x[blockIdx.x * block + t];
    __syncthreads();
#endif
    y[blockIdx.x * block + t] = max(s[t], s[block - 1 - t]);
}

int main() {
    constexpr int n = 2 * block;
    const auto x = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i)
        want[i] = std::max(x[i], x[i / block * block + block - 1 - i % block]);

    int* y = device_array<int>(n);
    pairwise_max<<<2, block>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want);
}
