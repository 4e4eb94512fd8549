// what: a ballot is kept in 32 bits, so the upper lanes' votes are lost
// expect: wrong
// widths: 64
// pitfall: 4
// sanitizer: none
// group: width
#include <hip/hip_runtime.h>

#include "check.h"

__global__ void count_positive(const float* x, int* counts, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef BUG
    unsigned votes = __ballot(i < n && x[i] > 0);
#else
    unsigned long long votes = __ballot(i < n && x[i] > 0);
#endif
    if (threadIdx.x % warpSize == 0) atomicAdd(&counts[blockIdx.x], __popcll(votes));
}

int main() {
    constexpr int n = 500, block = 128, blocks = 4;
    auto x = numbers<float>(n);
    for (float& value : x) value -= 50;
    std::vector<int> want(blocks);
    for (int i = 0; i < n; ++i) want[i / block] += x[i] > 0;

    int* counts = device_zeros<int>(blocks);
    count_positive<<<blocks, block>>>(to_device(x), counts, n);
    finish();
    return check(to_host(counts, blocks), want);
}
