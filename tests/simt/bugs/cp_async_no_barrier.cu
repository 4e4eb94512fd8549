// what: each thread waits for its own asynchronous copies and then reads the others'
// expect: SX201
// widths: 32 64
// arch: sm_80
// sanitizer: racecheck
// group: races
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128;

__global__ void moving_sum(const float* in, float* out, int n) {
    __shared__ float s[block + 2];
    const int first = blockIdx.x * block, t = threadIdx.x;
    for (int i = t; i < block + 2; i += block) {
        if (first + i < n) __pipeline_memcpy_async(&s[i], &in[first + i], sizeof(float));
        else s[i] = 0;
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
#ifndef BUG
    __syncthreads();
#endif
    if (first + t < n) out[first + t] = s[t] + s[t + 1] + s[t + 2];
}

int main() {
    constexpr int n = 1000;
    const auto in = numbers<float>(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i)
        for (int j = i; j < std::min(i + 3, n); ++j) want[i] += in[j];

    float* out = device_array<float>(n);
    moving_sum<<<(n + block - 1) / block, block>>>(to_device(in), out, n);
    finish();
    return check(to_host(out, n), want);
}
