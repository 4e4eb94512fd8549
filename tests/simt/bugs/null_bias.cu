// what: an optional bias is read although none was given
// expect: SX112
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

struct Epilogue {
    const float* bias = nullptr;
    float scale = 1;
};

__global__ void finish_rows(float* x, Epilogue epilogue, int n, int cols) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#ifdef BUG
    x[i] = epilogue.scale * x[i] + epilogue.bias[i % cols];
#else
    x[i] = epilogue.scale * x[i] + (epilogue.bias ? epilogue.bias[i % cols] : 0);
#endif
}

int main() {
    constexpr int rows = 9, cols = 30, n = rows * cols;
    const auto x = numbers<float>(n);
    auto want = x;
    for (float& value : want) value *= 2;

    float* device = to_device(x);
    Epilogue epilogue;
    epilogue.scale = 2;
    finish_rows<<<2, 160>>>(device, epilogue, n, cols);
    finish();
    return check(to_host(device, n), want);
}
