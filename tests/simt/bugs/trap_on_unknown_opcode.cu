// what: the interpreter on the device meets an operation that was not given to it, and traps
// expect: SX408 | error
// widths: 32 64
// sanitizer: memcheck
// group: launch
#include <cuda_runtime.h>

#include "check.h"

__device__ float apply(char op, float a, float b) {
    switch (op) {
    case '+':
        return a + b;
    case '-':
        return a - b;
#ifndef BUG
    case '*':
        return a * b;
#endif
    default:
        __trap();
    }
    return 0;
}

__global__ void evaluate(const char* program, const float* x, float* y, int steps, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value = x[i];
    for (int s = 0; s < steps; ++s) value = apply(program[s], value, s + 1);
    y[i] = value;
}

int main() {
    constexpr int n = 100;
    const std::vector<char> program = {'+', '*', '-', '*'};
    const auto x = numbers<float>(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i) want[i] = ((x[i] + 1) * 2 - 3) * 4;

    float* y = device_array<float>(n);
    evaluate<<<2, 64>>>(to_device(program), to_device(x), y, int(program.size()), n);
    finish();
    return check(to_host(y, n), want);
}
