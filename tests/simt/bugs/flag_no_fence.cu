// what: data handed to another block is not fenced before the flag that announces it
// expect: SX203
// widths: 32 64
// pitfall: 51
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

// The block that starts first produces for the other: order of arrival, so nobody waits in vain.
__global__ void hand_over(const int* x, int* mail, int* arrivals, int* ready, int* y) {
    __shared__ int role;
    if (threadIdx.x == 0) role = atomicAdd(arrivals, 1);
    __syncthreads();
    if (role == 0) {
        mail[threadIdx.x] = 3 * x[threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0) {
#ifndef BUG
            __threadfence();
#endif
            atomicExch(ready, 1);
        }
    } else {
        if (threadIdx.x == 0) {
            while (atomicAdd(ready, 0) == 0) {}
            __threadfence();
        }
        __syncthreads();
        y[threadIdx.x] = mail[blockDim.x - 1 - threadIdx.x];
    }
}

int main() {
    constexpr int n = 128;
    const auto x = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = 3 * x[n - 1 - i];

    int *mail = device_zeros<int>(n), *y = device_zeros<int>(n);
    hand_over<<<2, n>>>(to_device(x), mail, device_zeros<int>(1), device_zeros<int>(1), y);
    finish();
    return check(to_host(y, n), want);
}
