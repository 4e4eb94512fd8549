// what: the tree's array is refilled with exponentials while others still read the maximum in it
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int cols = 128;  // one thread per column, one block per row

__global__ void softmax(const float* x, float* y) {
    __shared__ float s[cols];
    const int t = threadIdx.x;
    const float value = x[blockIdx.x * cols + t];
    s[t] = value;
    __syncthreads();
    for (int half = cols / 2; half > 0; half >>= 1) {
        if (t < half) s[t] = fmaxf(s[t], s[t + half]);
        __syncthreads();
    }
    const float e = expf(value - s[0]);
#ifndef BUG
    __syncthreads();
#endif
    s[t] = e;
    __syncthreads();
    for (int half = cols / 2; half > 0; half >>= 1) {
        if (t < half) s[t] += s[t + half];
        __syncthreads();
    }
    y[blockIdx.x * cols + t] = e / s[0];
}

int main() {
    constexpr int rows = 5;
    auto x = numbers<float>(rows * cols, 31);
    for (float& value : x) value /= 8;
    std::vector<float> want(rows * cols);
    for (int r = 0; r < rows; ++r) {
        double sum = 0;
        for (int i = 0; i < cols; ++i) sum += std::exp(double(x[r * cols + i]));
        for (int i = 0; i < cols; ++i)
            want[r * cols + i] = std::exp(double(x[r * cols + i])) / sum;
    }
    float* y = device_array<float>(rows * cols);
    softmax<<<rows, cols>>>(to_device(x), y);
    finish();
    return check(to_host(y, rows * cols), want, 1e-5);
}
