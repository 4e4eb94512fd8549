// what: gradients of repeated tokens are added to one embedding row without atomics
// expect: SX202 | SX203
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int features = 8;

__global__ void embedding_backward(const int* tokens, const float* grad, float* table, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * features) return;
    float* cell = &table[tokens[i / features] * features + i % features];
#ifdef BUG
    *cell += grad[i];
#else
    atomicAdd(cell, grad[i]);
#endif
}

int main() {
    constexpr int n = 150, vocabulary = 20;
    const auto tokens = numbers<int>(n, 17);
    const auto grad = numbers<float>(n * features);
    std::vector<float> want(vocabulary * features);
    for (int i = 0; i < n * features; ++i)
        want[tokens[i / features] * features + i % features] += grad[i];

    float* table = device_zeros<float>(vocabulary * features);
    embedding_backward<<<5, 256>>>(to_device(tokens), to_device(grad), table, n);
    finish();
    return check(to_host(table, vocabulary * features), want);
}
