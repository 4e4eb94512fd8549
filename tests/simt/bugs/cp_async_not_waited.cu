// what: asynchronous copies to shared memory are committed but never waited for
// expect: SX201 | SX107 | wrong
// widths: 32 64
// arch: sm_80
// sanitizer: racecheck
// group: races
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 64, vectors = 4;

__global__ void reverse_blocks(const float4* in, float4* out) {
    __shared__ float4 s[block * vectors];
    const int first = blockIdx.x * block * vectors;
    for (int v = threadIdx.x; v < block * vectors; v += block)
        __pipeline_memcpy_async(&s[v], &in[first + v], sizeof(float4));
    __pipeline_commit();
#ifndef BUG
    __pipeline_wait_prior(0);
#endif
    __syncthreads();
    for (int v = threadIdx.x; v < block * vectors; v += block)
        out[first + v] = s[block * vectors - 1 - v];
}

int main() {
    constexpr int n = 3 * block * vectors;
    const auto x = numbers<float>(4 * n, 9973);
    std::vector<float4> in(n);
    std::vector<float> got, want(4 * n);
    for (int i = 0; i < n; ++i) {
        in[i] = make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
        const int group = i / (block * vectors), from = (2 * group + 1) * block * vectors - 1 - i;
        for (int k = 0; k < 4; ++k) want[4 * i + k] = x[4 * from + k];
    }
    float4* out = device_array<float4>(n);
    reverse_blocks<<<3, block>>>(to_device(in), out);
    finish();
    for (const float4& v : to_host(out, n)) got.insert(got.end(), {v.x, v.y, v.z, v.w});
    return check(got, want);
}
