// what: blocks count their arrival with an atomic that is atomic within a block only
// expect: SX206
// widths: 32 64
// sanitizer: none
// group: races
#include <climits>
#include <cuda_runtime.h>

#include "check.h"

// The largest value and its index: blocks leave candidates, the last one to arrive picks.
__global__ void arg_max(const int* x, int2* candidates, unsigned* arrived, int2* best, int n) {
    __shared__ int value, index;
    __shared__ bool last;
    if (threadIdx.x == 0) {
        value = INT_MIN;
        index = n;
    }
    __syncthreads();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicMax(&value, x[i]);
    __syncthreads();
    if (i < n && x[i] == value) atomicMin(&index, i);
    __syncthreads();
    if (threadIdx.x == 0) {
        candidates[blockIdx.x] = make_int2(value, index);
        __threadfence();
#ifdef BUG
        const unsigned ticket = atomicAdd_block(arrived, 1u);
#else
        const unsigned ticket = atomicAdd(arrived, 1u);
#endif
        __threadfence();
        last = ticket == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int2 top = candidates[0];
        for (unsigned b = 1; b < gridDim.x; ++b)
            if (candidates[b].x > top.x) top = candidates[b];
        *best = top;
    }
}

int main() {
    constexpr int n = 900, block = 128, blocks = (n + block - 1) / block;
    const auto x = numbers<int>(n, 887);
    const auto top = std::max_element(x.begin(), x.end());

    int2 *candidates = device_array<int2>(blocks), *best = device_zeros<int2>(1);
    unsigned* arrived = device_zeros<unsigned>(1);
    arg_max<<<blocks, block>>>(to_device(x), candidates, arrived, best, n);
    finish();
    const int2 got = to_host(best, 1)[0];
    return check(std::vector<int>{got.x, got.y}, std::vector<int>{*top, int(top - x.begin())});
}
