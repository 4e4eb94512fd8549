// what: a hash table has fewer slots than keys, which its assertion reports
// expect: SX407 | error
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cassert>
#include <cuda_runtime.h>

#include "check.h"

#ifdef BUG
constexpr int slots = 64;
#else
constexpr int slots = 256;
#endif

__global__ void insert(const int* keys, int* table, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int at = keys[i] * 31 % slots, tries = 0;
    for (; atomicCAS(&table[at], -1, keys[i]) != -1; at = (at + 1) % slots) assert(++tries < slots);
}

int main() {
    constexpr int n = 100;
    auto want = numbers<int>(n);  // all different
    int* table = to_device(std::vector<int>(slots, -1));
    insert<<<2, 64>>>(to_device(want), table, n);
    finish();
    std::vector<int> got;
    for (int key : to_host(table, slots))
        if (key >= 0) got.push_back(key);
    got.resize(n);
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
    return check(got, want);
}
