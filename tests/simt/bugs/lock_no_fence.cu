// what: a lock is released without a fence, so the next owner may miss what it guards
// expect: SX203
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

struct Statistics {
    int lock, blocks;
    double sum, squares;
};

__global__ void accumulate(const int* x, Statistics* all) {
    const int votes = __syncthreads_count(x[blockIdx.x * blockDim.x + threadIdx.x] % 3 == 0);
    if (threadIdx.x != 0) return;
    while (atomicCAS(&all->lock, 0, 1) != 0) {}
    __threadfence();
    all->blocks += 1;
    all->sum += votes;
    all->squares += votes * votes;
#ifndef BUG
    __threadfence();
#endif
    atomicExch(&all->lock, 0);
}

int main() {
    constexpr int block = 96, blocks = 8;
    const auto x = numbers<int>(block * blocks);
    std::vector<double> want = {blocks, 0, 0};
    for (int b = 0; b < blocks; ++b) {
        int votes = 0;
        for (int i = 0; i < block; ++i) votes += x[b * block + i] % 3 == 0;
        want[1] += votes;
        want[2] += votes * votes;
    }
    Statistics* all = device_zeros<Statistics>(1);
    accumulate<<<blocks, block>>>(to_device(x), all);
    finish();
    const Statistics got = to_host(all, 1)[0];
    return check(std::vector<double>{double(got.blocks), got.sum, got.squares}, want);
}
