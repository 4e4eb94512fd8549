// what: the kernel takes every AMD warp for 64 lanes wide, and RDNA's are 32
// expect: wrong
// widths: 32
// twin-widths: 32 64
// pitfall: 9
// sanitizer: none
// group: width
#include <hip/hip_runtime.h>

#include "check.h"

__global__ void row_sums(const float* x, float* sums, int cols) {
#ifdef BUG
    const int lanes = 64;
#else
    const int lanes = warpSize;
#endif
    __shared__ float partial[32];
    float value = 0;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) value += x[blockIdx.x * cols + i];
    for (int d = lanes / 2; d > 0; d /= 2) value += __shfl_xor(value, d);
    if (threadIdx.x % lanes == 0) partial[threadIdx.x / lanes] = value;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float sum = 0;
    for (unsigned w = 0; w < blockDim.x / lanes; ++w) sum += partial[w];
    sums[blockIdx.x] = sum;
}

int main() {
    constexpr int rows = 5, cols = 300;
    const auto x = numbers<float>(rows * cols);
    std::vector<float> want(rows);
    for (int i = 0; i < rows * cols; ++i) want[i / cols] += x[i];

    float* sums = device_array<float>(rows);
    row_sums<<<rows, 256>>>(to_device(x), sums, cols);
    finish();
    return check(to_host(sums, rows), want);
}
