// what: cudaMemset is given sizeof the pointer, so only two counters are cleared
// expect: SX108
// widths: 32 64
// sanitizer: initcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void column_sums(const float* x, float* sums, int rows, int cols) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) atomicAdd(&sums[i % cols], x[i]);
}

int main() {
    constexpr int rows = 30, cols = 20;
    const auto x = numbers<float>(rows * cols);
    std::vector<float> want(cols);
    for (int i = 0; i < rows * cols; ++i) want[i % cols] += x[i];

    float* sums = device_array<float>(cols);
#ifdef BUG
    CHECK_CUDA(cudaMemset(sums, 0, sizeof(sums)));
#else
    CHECK_CUDA(cudaMemset(sums, 0, cols * sizeof(*sums)));
#endif
    column_sums<<<5, 128>>>(to_device(x), sums, rows, cols);
    finish();
    return check(to_host(sums, cols), want);
}
