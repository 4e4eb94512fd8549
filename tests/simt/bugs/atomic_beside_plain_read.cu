// what: a counter that others raise atomically is read plainly to stop early
// expect: SX205
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int limit = 10;

// Up to `limit` indices of negative values, in any order.
__global__ void find_negative(const int* x, int* found, int* where, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || x[i] >= 0) return;
#ifdef BUG
    if (*found >= limit) return;
#else
    if (atomicAdd(found, 0) >= limit) return;
#endif
    const int slot = atomicAdd(found, 1);
    if (slot < limit) where[slot] = i;
}

int main() {
    constexpr int n = 800;
    auto x = numbers<int>(n);
    for (int& value : x) value -= 20;

    int *found = device_zeros<int>(1), *where = device_array<int>(limit);
    find_negative<<<4, 200>>>(to_device(x), found, where, n);
    finish();
    std::vector<int> negative;
    for (int i : to_host(where, limit)) negative.push_back(i >= 0 && i < n && x[i] < 0);
    return check(negative, std::vector<int>(limit, 1));
}
