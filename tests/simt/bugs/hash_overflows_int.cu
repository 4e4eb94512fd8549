// what: a hash multiplies signed integers beyond their range
// expect: SX501
// widths: 32 64
// sanitizer: none
// group: arithmetic
#include <cuda_runtime.h>

#include "check.h"

#ifdef BUG
using word = int;
#else
using word = unsigned;
#endif

__device__ unsigned hash(const unsigned char* text, int length) {
    word h = 17;
    for (int i = 0; i < length; ++i) h = h * 16777619 + text[i];
    return h;
}

__global__ void hashes(const unsigned char* texts, unsigned* out, int n, int length) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = hash(texts + i * length, length);
}

int main() {
    constexpr int n = 90, length = 12;
    const auto texts = numbers<unsigned char>(n * length, 251);
    std::vector<unsigned> want(n);
    for (int i = 0; i < n; ++i) {
        want[i] = 17;
        for (int k = 0; k < length; ++k) want[i] = want[i] * 16777619 + texts[i * length + k];
    }
    unsigned* out = device_array<unsigned>(n);
    hashes<<<3, 32>>>(to_device(texts), out, n, length);
    finish();
    return check(to_host(out, n), want);
}
