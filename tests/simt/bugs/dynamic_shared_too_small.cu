// what: dynamic shared memory is launched with a count of elements for its size in bytes
// expect: SX102
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void rotate(const int* in, int* out, int by) {
    extern __shared__ int s[];
    const int t = threadIdx.x, first = blockIdx.x * blockDim.x;
    s[t] = in[first + t];
    __syncthreads();
    out[first + t] = s[(t + by) % blockDim.x];
}

int main() {
    constexpr int block = 256, n = 2 * block, by = 5;
    const auto in = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = in[i / block * block + (i + by) % block];

    int* out = device_array<int>(n);
#ifdef BUG
    const size_t bytes = block;
#else
    const size_t bytes = block * sizeof(int);
#endif
    rotate<<<n / block, block, bytes>>>(to_device(in), out, by);
    finish();
    return check(to_host(out, n), want);
}
