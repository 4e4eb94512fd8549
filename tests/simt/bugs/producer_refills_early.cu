// what: producer warps refill the shared buffer while consumer warps still read it
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int half = 128;  // producers; as many consumers

__global__ void smooth(const float* in, float* out, int chunks) {
    __shared__ float chunk[half];
    const int t = threadIdx.x % half;
    const bool producer = threadIdx.x < half;
    for (int c = 0; c < chunks; ++c) {
        if (producer) chunk[t] = in[c * half + t] * 2;
        __syncthreads();
        if (!producer) out[c * half + t] = chunk[t] + chunk[(t + 1) % half];
#ifndef BUG
        __syncthreads();
#endif
    }
}

int main() {
    constexpr int chunks = 4, n = chunks * half;
    const auto in = numbers<float>(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i) want[i] = 2 * in[i] + 2 * in[i / half * half + (i + 1) % half];

    float* out = device_array<float>(n);
    smooth<<<1, 2 * half>>>(to_device(in), out, chunks);
    finish();
    return check(to_host(out, n), want);
}
