// what: a three-stage cp.async pipeline lets one group too many stay in flight
// expect: SX201 | SX107 | wrong
// widths: 32 64
// arch: sm_80
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 64, chunk = 4 * block, stages = 3;

__device__ void copy16(float* to, const float* from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

__global__ void mirrored_dots(const float* x, const float* y, float* sums, int chunks) {
    __shared__ __align__(16) float ring[stages][chunk];
    const int t = threadIdx.x;
    for (int k = 0; k < stages - 1; ++k) {
        if (k < chunks) copy16(&ring[k][4 * t], x + k * chunk + 4 * t);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    float sum = 0;
    for (int k = 0; k < chunks; ++k) {
#ifdef BUG
        asm volatile("cp.async.wait_group 2;" ::: "memory");
#else
        asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
        __syncthreads();
        const int ahead = k + stages - 1;
        if (ahead < chunks) copy16(&ring[ahead % stages][4 * t], x + ahead * chunk + 4 * t);
        asm volatile("cp.async.commit_group;" ::: "memory");
        for (int i = t; i < chunk; i += block) sum += ring[k % stages][chunk - 1 - i] * y[i];
    }
    sums[t] = sum;
}

int main() {
    constexpr int chunks = 5;
    const auto x = numbers<float>(chunks * chunk, 61), y = numbers<float>(chunk, 7);
    std::vector<float> want(block);
    for (int k = 0; k < chunks; ++k)
        for (int i = 0; i < chunk; ++i) want[i % block] += x[k * chunk + chunk - 1 - i] * y[i];

    float* sums = device_array<float>(block);
    mirrored_dots<<<1, block>>>(to_device(x), to_device(y), sums, chunks);
    finish();
    return check(to_host(sums, block), want);
}
