// what: a double-buffered prefix sum writes to the buffer that it reads from
// expect: SX201
// widths: 32 64
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 256;

__global__ void inclusive_scan(const int* x, int* y) {
    __shared__ int buffer[2][block];
    const int t = threadIdx.x;
    int in = 0;
    buffer[in][t] = x[blockIdx.x * block + t];
    __syncthreads();
    for (int d = 1; d < block; d *= 2) {
#ifdef BUG
        const int out = in;
#else
        const int out = 1 - in;
#endif
        buffer[out][t] = t >= d ? buffer[in][t] + buffer[in][t - d] : buffer[in][t];
        __syncthreads();
        in = out;
    }
    y[blockIdx.x * block + t] = buffer[in][t];
}

int main() {
    constexpr int n = 3 * block;
    const auto x = numbers<int>(n);
    std::vector<int> want(x);
    for (int i = 0; i < n; ++i)
        if (i % block != 0) want[i] += want[i - 1];

    int* y = device_array<int>(n);
    inclusive_scan<<<n / block, block>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want);
}
