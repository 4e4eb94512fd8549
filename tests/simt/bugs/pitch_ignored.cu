// what: rows of a pitched allocation are addressed by their width
// expect: wrong | SX108
// widths: 32 64
// sanitizer: initcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void row_minima(const float* x, size_t pitch, float* minima, int rows, int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
#ifdef BUG
    const float* at = x + row * cols;
#else
    const float* at = (const float*)((const char*)x + row * pitch);
#endif
    float low = at[0];
    for (int i = 1; i < cols; ++i) low = fminf(low, at[i]);
    minima[row] = low;
}

int main() {
    constexpr int rows = 24, cols = 37;
    auto x = numbers<float>(rows * cols);
    std::vector<float> want(rows);
    for (int i = 0; i < rows * cols; ++i) x[i] += 1 + i / cols;
    for (int r = 0; r < rows; ++r) want[r] = *std::min_element(&x[r * cols], &x[r * cols] + cols);

    float* device = nullptr;
    size_t pitch = 0;
    constexpr size_t width = cols * sizeof(float);
    CHECK_CUDA(cudaMallocPitch((void**)&device, &pitch, width, rows));
    CHECK_CUDA(
        cudaMemcpy2D(device, pitch, x.data(), width, width, rows, cudaMemcpyHostToDevice));
    float* minima = device_array<float>(rows);
    row_minima<<<1, 32>>>(device, pitch, minima, rows, cols);
    finish();
    return check(to_host(minima, rows), want);
}
