// what: the flag that announces data is stored plainly, so neither it nor the data is ordered
// expect: SX205 | SX203
// widths: 32 64
// pitfall: 51
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

// A chain of blocks in order of arrival: each adds its part to the sum handed on to it.
__global__ void chain(const int* x, int* sums, int* flags, int* arrivals) {
    __shared__ int me;
    if (threadIdx.x == 0) me = atomicAdd(arrivals, 1);
    __syncthreads();
    const int votes = __syncthreads_count(x[me * blockDim.x + threadIdx.x] > 50);
    if (threadIdx.x != 0) return;
    int before = 0;
    if (me > 0) {
        while (atomicAdd(&flags[me - 1], 0) == 0) {}
        __threadfence();
        before = sums[me - 1];
    }
    sums[me] = before + votes;
    __threadfence();
#ifdef BUG
    flags[me] = 1;
#else
    atomicExch(&flags[me], 1);
#endif
}

int main() {
    constexpr int block = 64, blocks = 6;
    const auto x = numbers<int>(block * blocks);
    std::vector<int> want(blocks);
    int sum = 0;
    for (int i = 0; i < block * blocks; ++i) want[i / block] = sum += x[i] > 50;

    int *sums = device_array<int>(blocks), *flags = device_zeros<int>(blocks);
    chain<<<blocks, block>>>(to_device(x), sums, flags, device_zeros<int>(1));
    finish();
    return check(to_host(sums, blocks), want);
}
