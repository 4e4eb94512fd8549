// what: a smoothing step writes to the array that neighbouring threads still read
// expect: SX202 | SX203
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

__global__ void smooth(const float* in, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float left = in[max(i - 1, 0)], right = in[min(i + 1, n - 1)];
    out[i] = left + 2 * in[i] + right;
}

int main() {
    constexpr int n = 1000;
    const auto x = numbers<float>(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i)
        want[i] = x[std::max(i - 1, 0)] + 2 * x[i] + x[std::min(i + 1, n - 1)];

    float* in = to_device(x);
#ifdef BUG
    float* out = in;
#else
    float* out = device_array<float>(n);
#endif
    smooth<<<(n + 255) / 256, 256>>>(in, out, n);
    finish();
    return check(to_host(out, n), want);
}
