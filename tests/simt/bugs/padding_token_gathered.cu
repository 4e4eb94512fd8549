// what: the padding token -1 is looked up in the embedding table like any other
// expect: SX101
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

constexpr int features = 6;

__global__ void embed(const int* tokens, const float* table, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * features) return;
    const int token = tokens[i / features];
#ifdef BUG
    out[i] = table[token * features + i % features];
#else
    out[i] = token >= 0 ? table[token * features + i % features] : 0;
#endif
}

int main() {
    constexpr int n = 75, vocabulary = 30;
    auto tokens = numbers<int>(n, vocabulary + 1);
    for (int& token : tokens) --token;
    const auto table = numbers<float>(vocabulary * features);
    std::vector<float> want(n * features);
    for (int i = 0; i < n * features; ++i) {
        const int token = tokens[i / features];
        want[i] = token >= 0 ? table[token * features + i % features] : 0;
    }
    float* out = device_array<float>(n * features);
    embed<<<4, 128>>>(to_device(tokens), to_device(table), out, n);
    finish();
    return check(to_host(out, n * features), want);
}
