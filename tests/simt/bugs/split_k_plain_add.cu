// what: blocks that share an output tile accumulate into it without atomics
// expect: SX203
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

// Block z multiplies its slice of the inner dimension and adds to c, which starts at zero.
__global__ void matmul_split_k(const float* a, const float* b, float* c, int n, int slice) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= n) return;
    float sum = 0;
    const int first = blockIdx.z * slice, last = min(first + slice, n);
    for (int k = first; k < last; ++k) sum += a[row * n + k] * b[k * n + col];
#ifdef BUG
    c[row * n + col] += sum;
#else
    atomicAdd(&c[row * n + col], sum);
#endif
}

int main() {
    constexpr int n = 36;
    const auto a = numbers<float>(n * n), b = numbers<float>(n * n, 23);
    std::vector<float> want(n * n);
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j)
            for (int k = 0; k < n; ++k) want[i * n + j] += a[i * n + k] * b[k * n + j];

    float* c = device_zeros<float>(n * n);
    matmul_split_k<<<dim3(5, 5, 4), dim3(8, 8)>>>(to_device(a), to_device(b), c, n, 9);
    finish();
    return check(to_host(c, n * n), want);
}
