// what: the guard i - 1 >= 0 is always true because i is unsigned
// expect: SX101 | SX104
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void first_in_run(const int* keys, int* flags, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int same_as_left = 0;
#ifdef BUG
    if (i - 1 >= 0) same_as_left = keys[i - 1] == keys[i];
#else
    if (i >= 1) same_as_left = keys[i - 1] == keys[i];
#endif
    flags[i] = !same_as_left;
}

int main() {
    constexpr int n = 210;
    std::vector<int> keys(n), want(n);
    for (int i = 0; i < n; ++i) keys[i] = i / 4;
    for (int i = 0; i < n; ++i) want[i] = i % 4 == 0;

    int* flags = device_array<int>(n);
    first_in_run<<<2, 128>>>(to_device(keys), flags, n);
    finish();
    return check(to_host(flags, n), want);
}
