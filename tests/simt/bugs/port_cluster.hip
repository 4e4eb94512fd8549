// what: blocks form a cluster and read each other's shared memory
// expect: build SX009
// widths: 32 64
// pitfall: 18
// sanitizer: none
// group: porting
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

constexpr int block = 64;

// Every block subtracts the sum of its neighbour in a pair.
#ifdef BUG
__global__ void __cluster_dims__(2, 1, 1) subtract_sum(const int* x, int* y) {
    __shared__ int sum;
    cg::cluster_group cluster = cg::this_cluster();
    const int value = x[blockIdx.x * block + threadIdx.x];
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, value);
    cluster.sync();
    const int other = *cluster.map_shared_rank(&sum, blockIdx.x % 2 ^ 1);
    y[blockIdx.x * block + threadIdx.x] = value - other;
    cluster.sync();
}
#else
__global__ void subtract_sum(const int* x, int* y) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[(blockIdx.x ^ 1) * block + threadIdx.x]);
    __syncthreads();
    y[blockIdx.x * block + threadIdx.x] = x[blockIdx.x * block + threadIdx.x] - sum;
}
#endif

int main() {
    constexpr int blocks = 4, n = blocks * block;
    const auto x = numbers<int>(n);
    std::vector<int> want(x);
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < block; ++k) want[i] -= x[(i / block ^ 1) * block + k];

    int* y = device_array<int>(n);
    subtract_sum<<<blocks, block>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want);
}
