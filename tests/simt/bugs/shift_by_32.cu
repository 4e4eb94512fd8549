// what: a field of the word's full 32 bits is masked with (1 << 32) - 1
// expect: SX502
// widths: 32 64
// sanitizer: none
// group: arithmetic
#include <cuda_runtime.h>

#include "check.h"

// Unpacks fields of 4, 8, 16 or 32 bits from words.
__global__ void unpack(const unsigned* words, const int* bits, unsigned* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#ifdef BUG
    const unsigned mask = (1u << bits[i]) - 1;
#else
    const unsigned mask = (1ull << bits[i]) - 1;
#endif
    out[i] = words[i] & mask;
}

int main() {
    constexpr int n = 120;
    auto words = numbers<unsigned>(n, 65521);
    std::vector<int> bits(n);
    std::vector<unsigned> want(n);
    for (int i = 0; i < n; ++i) {
        words[i] *= 65537u;
        bits[i] = 4 << i % 4;
        want[i] = bits[i] == 32 ? words[i] : words[i] % (1u << bits[i]);
    }
    unsigned* out = device_array<unsigned>(n);
    unpack<<<2, 64>>>(to_device(words), to_device(bits), out, n);
    finish();
    return check(to_host(out, n), want);
}
