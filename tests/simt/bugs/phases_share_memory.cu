// what: shared memory is reused for counters while some threads still read the floats in it
// expect: SX201 | SX205
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 192, bins = 16;

// Values above the mean of their block, counted by their last four bits.
__global__ void above_mean(const int* x, int* counts) {
    extern __shared__ __align__(16) char scratch[];
    float* values = reinterpret_cast<float*>(scratch);
    const int t = threadIdx.x, value = x[blockIdx.x * block + t];
    values[t] = value;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < block; ++i) sum += values[i];
#ifndef BUG
    __syncthreads();
#endif
    int* local = reinterpret_cast<int*>(scratch);
    if (t < bins) local[t] = 0;
    __syncthreads();
    if (value * block > sum) atomicAdd(&local[value % bins], 1);
    __syncthreads();
    if (t < bins) counts[blockIdx.x * bins + t] = local[t];
}

int main() {
    constexpr int blocks = 3;
    const auto x = numbers<int>(blocks * block, 997);
    std::vector<int> want(blocks * bins);
    for (int b = 0; b < blocks; ++b) {
        int sum = 0;
        for (int i = 0; i < block; ++i) sum += x[b * block + i];
        for (int i = 0; i < block; ++i)
            want[b * bins + x[b * block + i] % bins] += x[b * block + i] * block > sum;
    }
    int* counts = device_array<int>(blocks * bins);
    above_mean<<<blocks, block, block * sizeof(float)>>>(to_device(x), counts);
    finish();
    return check(to_host(counts, blocks * bins), want);
}
