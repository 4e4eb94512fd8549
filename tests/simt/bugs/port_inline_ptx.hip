// what: the lane's number is read by inline PTX
// expect: build SX001 | build
// widths: 32 64
// pitfall: 19
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

__device__ unsigned lane_number() {
#ifdef BUG
    unsigned lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
#else
    return __lane_id();
#endif
}

__global__ void alternate(const int* x, int* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = lane_number() % 2 ? -x[i] : x[i];
}

int main() {
    constexpr int n = 256;
    const auto x = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = i % 2 ? -x[i] : x[i];

    int* y = device_array<int>(n);
    alternate<<<2, 128>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want);
}
