// what: a byte is set by reading and writing back the word that it shares with its neighbours
// expect: SX202 | SX203 | SX204
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

__global__ void threshold(const float* x, unsigned char* mask, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned char value = x[i] > 40 ? 255 : 1;
#ifdef BUG
    unsigned* word = reinterpret_cast<unsigned*>(mask) + i / 4;
    const int shift = i % 4 * 8;
    *word = (*word & ~(255u << shift)) | unsigned(value) << shift;
#else
    mask[i] = value;
#endif
}

int main() {
    constexpr int n = 600;
    const auto x = numbers<float>(n);
    std::vector<unsigned char> want(n);
    for (int i = 0; i < n; ++i) want[i] = x[i] > 40 ? 255 : 1;

    unsigned char* mask = device_zeros<unsigned char>(n);
    threshold<<<5, 128>>>(to_device(x), mask, n);
    finish();
    return check(to_host(mask, n), want);
}
