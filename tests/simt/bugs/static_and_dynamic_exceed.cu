// what: a static and a dynamic array fit the 48 KB each, but not together
// expect: SX402 | SX401 | error
// widths: 32
// sanitizer: memcheck
// group: launch
#include <cuda_runtime.h>

#include "check.h"

constexpr int table = 8192;  // ints: 32 KB

__global__ void look_up(const int* x, int* y, int n) {
    __shared__ int squares[table];
    extern __shared__ int keys[];
    for (int i = threadIdx.x; i < table; i += blockDim.x) squares[i] = i * i % 1000;
    for (int i = threadIdx.x; i < n; i += blockDim.x) keys[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = squares[keys[n - 1 - i]];
}

int main() {
    constexpr int n = 2000;
    const auto x = numbers<int>(n, 8191);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = x[n - 1 - i] * x[n - 1 - i] % 1000;

    int* y = device_array<int>(n);
#ifdef BUG
    const size_t bytes = 6 * n * sizeof(int);  // room for all six stages at once
#else
    const size_t bytes = n * sizeof(int);
#endif
    look_up<<<1, 128, bytes>>>(to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
