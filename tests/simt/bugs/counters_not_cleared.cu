// what: atomics add to a buffer from cudaMalloc that nobody has cleared
// expect: SX108
// widths: 32 64
// sanitizer: initcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void degrees(const int2* edges, int* degree, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&degree[edges[i].x], 1);
    atomicAdd(&degree[edges[i].y], 1);
}

int main() {
    constexpr int n = 400, vertices = 60;
    std::vector<int2> edges(n);
    std::vector<int> want(vertices);
    for (int i = 0; i < n; ++i) {
        edges[i] = make_int2(i * 7 % vertices, i * 11 % vertices);
        ++want[edges[i].x];
        ++want[edges[i].y];
    }
    int* degree = device_array<int>(vertices);
#ifndef BUG
    CHECK_CUDA(cudaMemset(degree, 0, vertices * sizeof(int)));
#endif
    degrees<<<4, 128>>>(to_device(edges), degree, n);
    finish();
    return check(to_host(degree, vertices), want);
}
