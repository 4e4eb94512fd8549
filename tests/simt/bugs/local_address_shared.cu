// what: a thread publishes the address of its local variable and others read through it
// expect: SX109
// widths: 32 64
// sanitizer: none
// group: memory
#include <cuda_runtime.h>

#include "check.h"

struct Range {
    int low, high;
};

// Thread 0 finds the range of the block's values; everybody scales by it.
__global__ void normalise(const int* x, float* y, int block) {
#ifdef BUG
    __shared__ Range* range;
    Range own;
    if (threadIdx.x == 0) range = &own;
#else
    __shared__ Range own;
    Range* range = &own;
#endif
    x += blockIdx.x * block;
    if (threadIdx.x == 0) {
        own = Range{x[0], x[0]};
        for (int i = 1; i < block; ++i) own = Range{min(own.low, x[i]), max(own.high, x[i])};
    }
    __syncthreads();
    const float span = range->high - range->low;
    y[blockIdx.x * block + threadIdx.x] = (x[threadIdx.x] - range->low) / span;
}

int main() {
    constexpr int block = 96, blocks = 2;
    const auto x = numbers<int>(block * blocks);
    std::vector<float> want(block * blocks);
    for (int i = 0; i < block * blocks; ++i) {
        const auto first = x.begin() + i / block * block;
        const auto range = std::minmax_element(first, first + block);
        want[i] = float(x[i] - *range.first) / (*range.second - *range.first);
    }
    float* y = device_array<float>(block * blocks);
    normalise<<<blocks, block>>>(to_device(x), y, block);
    finish();
    return check(to_host(y, block * blocks), want, 1e-6);
}
