// what: survivors are written at a base that the block has not reserved yet
// expect: SX201 | SX107
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

__global__ void keep_even(const int* x, int* out, int* used, int n) {
    __shared__ int count, base;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool keep = i < n && x[i] % 2 == 0;
    const int slot = keep ? atomicAdd(&count, 1) : 0;
    __syncthreads();
    if (threadIdx.x == 0) base = atomicAdd(used, count);
#ifndef BUG
    __syncthreads();
#endif
    if (keep) out[base + slot] = x[i];
}

int main() {
    constexpr int n = 1000, block = 128;
    const auto x = numbers<int>(n, 1009);
    std::vector<int> want;
    for (int value : x)
        if (value % 2 == 0) want.push_back(value);

    int* out = device_array<int>(n);
    int* used = device_zeros<int>(1);
    keep_even<<<(n + block - 1) / block, block>>>(to_device(x), out, used, n);
    finish();
    auto got = to_host(out, to_host(used, 1)[0]);
    got.resize(want.size());
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
    return check(got, want);
}
