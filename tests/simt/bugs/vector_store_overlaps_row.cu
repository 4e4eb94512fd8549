// what: a row of 12 floats is stored as four float4, of which the last belongs to the next row
// expect: SX202 | SX203
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int cols = 12;

#ifdef BUG
constexpr int vectors = 4;
#else
constexpr int vectors = cols / 4;
#endif

__global__ void fill_rows(const float* scale, float* out, int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float4* to = reinterpret_cast<float4*>(out + row * cols);
    for (int v = 0; v < vectors; ++v) {
        const float first = scale[row] + 4 * v;
        to[v] = make_float4(first, first + 1, first + 2, first + 3);
    }
}

int main() {
    constexpr int rows = 200;
    const auto scale = numbers<float>(rows);
    std::vector<float> want(rows * cols);
    for (int i = 0; i < rows * cols; ++i) want[i] = scale[i / cols] + i % cols;

    float* out = device_array<float>(rows * cols + 4);
    fill_rows<<<4, 64>>>(to_device(scale), out, rows);
    finish();
    return check(to_host(out, rows * cols), want);
}
