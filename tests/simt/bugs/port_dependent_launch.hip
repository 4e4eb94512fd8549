// what: a kernel waits for its predecessor by programmatic dependent launch
// expect: build
// widths: 32 64
// pitfall: 47
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

__global__ void produce(int* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = i * i;
}

__global__ void consume(const int* x, int* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef BUG
    cudaGridDependencySynchronize();
#endif
    if (i < n) y[i] = x[n - 1 - i] + 1;
}

int main() {
    constexpr int n = 180;
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = (n - 1 - i) * (n - 1 - i) + 1;

    int *x = device_array<int>(n), *y = device_array<int>(n);
    produce<<<3, 64>>>(x, n);
    consume<<<3, 64>>>(x, y, n);
    finish();
    return check(to_host(y, n), want);
}
