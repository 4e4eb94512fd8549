// what: the guard is i <= n, so one thread writes just past the end
// expect: SX101
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void iota(int* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef BUG
    if (i <= n) out[i] = i;
#else
    if (i < n) out[i] = i;
#endif
}

int main() {
    constexpr int n = 333;
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = i;

    int* out = device_array<int>(n);
    iota<<<3, 128>>>(out, n);
    finish();
    return check(to_host(out, n), want);
}
