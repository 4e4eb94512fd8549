// what: an mbarrier expects an arrival of every thread, and those of the last warp never come
// expect: SX303 | SX405
// widths: 32
// arch: sm_90
// sanitizer: none
// group: convergence
// checks: hangs
#include <cuda_runtime.h>

#include "async.h"
#include "check.h"

constexpr int threads = 96, readers = 64;

__global__ void reverse(const float* in, float* out) {
    __shared__ float staged[readers];
    __shared__ uint64_t written;
    if (threadIdx.x == 0) {
#ifdef BUG
        init(&written, threads);
#else
        init(&written, readers);
#endif
    }
    __syncthreads();
    if (threadIdx.x >= readers) return;
    staged[threadIdx.x] = in[threadIdx.x];
    arrive(&written);
    wait(&written, 0);
    out[threadIdx.x] = staged[readers - 1 - threadIdx.x];
}

int main() {
    const auto in = numbers<float>(readers);
    const std::vector<float> want(in.rbegin(), in.rend());
    float* out = device_array<float>(readers);
    reverse<<<1, threads>>>(to_device(in), out);
    finish();
    return check(to_host(out, readers), want);
}
