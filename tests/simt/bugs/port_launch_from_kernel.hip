// what: a kernel launches the next one itself
// expect: build SX006
// widths: 32 64
// pitfall: 38
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

__global__ void square(int* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= x[i];
}

__global__ void decrement(int* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] -= 7;
#ifdef BUG
    __syncthreads();
    if (threadIdx.x == 0) square<<<1, blockDim.x>>>(x, n);
#endif
}

int main() {
    constexpr int n = 60;
    const auto x = numbers<int>(n);
    std::vector<int> want(x);
    for (int& value : want) value = (value - 7) * (value - 7);

    int* device = to_device(x);
    decrement<<<1, 64>>>(device, n);
#ifndef BUG
    square<<<1, 64>>>(device, n);
#endif
    finish();
    return check(to_host(device, n), want);
}
