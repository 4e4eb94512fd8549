// what: the last block reads the others' partial sums, which no fence has published
// expect: SX203
// widths: 32 64
// pitfall: 51
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 64;

__global__ void sum_all(const float* x, float* partial, unsigned* arrived, float* total, int n) {
    __shared__ float s[block];
    __shared__ bool last;
    const int t = threadIdx.x, i = blockIdx.x * block + t;
    s[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int half = block / 2; half > 0; half /= 2) {
        if (t < half) s[t] += s[t + half];
        __syncthreads();
    }
    if (t == 0) {
        partial[blockIdx.x] = s[0];
#ifndef BUG
        __threadfence();
#endif
        const unsigned ticket = atomicAdd(arrived, 1u);
        last = ticket == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || t != 0) return;
    __threadfence();
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];
    *total = sum;
}

int main() {
    constexpr int n = 700, blocks = (n + block - 1) / block;
    const auto x = numbers<float>(n);
    std::vector<float> want(1);
    for (float value : x) want[0] += value;

    float *partial = device_array<float>(blocks), *total = device_zeros<float>(1);
    unsigned* arrived = device_zeros<unsigned>(1);
    sum_all<<<blocks, block>>>(to_device(x), partial, arrived, total, n);
    finish();
    return check(to_host(total, 1), want);
}
