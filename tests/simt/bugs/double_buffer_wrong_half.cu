// what: the next chunk is prefetched into the half of the double buffer that is being read
// expect: SX201
// widths: 32 64
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128;

// y = A x for a square A: x goes through shared memory in chunks, one barrier per chunk.
__global__ void matvec(const float* a, const float* x, float* y, int n) {
    __shared__ float chunk[2][block];
    const int row = blockIdx.x * block + threadIdx.x;
    chunk[0][threadIdx.x] = x[threadIdx.x];
    float sum = 0;
    for (int k = 0; k < n / block; ++k) {
        __syncthreads();
#ifdef BUG
        const int next = k % 2;
#else
        const int next = (k + 1) % 2;
#endif
        if (k + 1 < n / block) chunk[next][threadIdx.x] = x[(k + 1) * block + threadIdx.x];
        for (int i = 0; i < block; ++i) sum += a[row * n + k * block + i] * chunk[k % 2][i];
    }
    y[row] = sum;
}

int main() {
    constexpr int n = 2 * block;
    const auto a = numbers<float>(n * n, 29), x = numbers<float>(n, 31);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < n; ++k) want[i] += a[i * n + k] * x[k];

    float* y = device_array<float>(n);
    matvec<<<n / block, block>>>(to_device(a), to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
