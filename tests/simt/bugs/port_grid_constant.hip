// what: a struct of parameters is marked __grid_constant__
// expect: build
// widths: 32 64
// pitfall: 46
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

struct Affine {
    float scale[4], shift[4];
};

#ifdef BUG
__global__ void apply(const __grid_constant__ Affine map, float* x, int n) {
#else
__global__ void apply(const Affine map, float* x, int n) {
#endif
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = map.scale[i % 4] * x[i] + map.shift[i % 4];
}

int main() {
    constexpr int n = 200;
    const Affine map = {{1, 2, 3, 4}, {8, 7, 6, 5}};
    const auto x = numbers<float>(n);
    auto want = x;
    for (int i = 0; i < n; ++i) want[i] = map.scale[i % 4] * x[i] + map.shift[i % 4];

    float* device = to_device(x);
    apply<<<2, 128>>>(map, device, n);
    finish();
    return check(to_host(device, n), want);
}
