// what: the halves of a block use one named barrier, so threads of the wrong half release it
// expect: SX201 | SX301 | SX303
// widths: 32 64
// sanitizer: synccheck
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128, half = block / 2;

__device__ void sync_half(int which) {
#ifdef BUG
    const int id = 1;
#else
    const int id = 1 + which;
#endif
    asm volatile("bar.sync %0, 64;" ::"r"(id) : "memory");
}

// Each half sorts its own 64 keys by odd-even transposition; the second half does so twice.
__global__ void sort_halves(int* keys) {
    __shared__ int s[block];
    const int which = threadIdx.x / half, t = threadIdx.x % half;
    int* mine = s + which * half;
    mine[t] = keys[threadIdx.x];
    for (int step = 0; step < half * (1 + which); ++step) {
        sync_half(which);
        const int left = 2 * t + step % 2;
        if (left + 1 < half && mine[left] > mine[left + 1]) {
            const int key = mine[left];
            mine[left] = mine[left + 1];
            mine[left + 1] = key;
        }
    }
    sync_half(which);
    keys[threadIdx.x] = mine[t];
}

int main() {
    const auto keys = numbers<int>(block, 127);
    auto want = keys;
    std::sort(want.begin(), want.begin() + half);
    std::sort(want.begin() + half, want.end());

    int* device = to_device(keys);
    sort_halves<<<1, block>>>(device);
    finish();
    return check(to_host(device, block), want);
}
