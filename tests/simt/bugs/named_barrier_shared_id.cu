// what: the halves of a block use one named barrier, so threads of the wrong half release it
// expect: SX201 | SX301 | SX303
// widths: 32 64
// sanitizer: synccheck
// group: convergence
// checks: hangs schedule
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

// The halves add up rows of their own, the second half two rows one after the other.
__global__ void row_sums(const int* x, int* sums) {
    __shared__ int s[block];
    const int which = threadIdx.x / half, t = threadIdx.x % half;
    int* mine = s + which * half;
    for (int row = which; row <= 2 * which; ++row) {
        mine[t] = x[row * half + t];
        for (int step = half / 2; step > 0; step /= 2) {
            sync_half(which);
            if (t < step) mine[t] += mine[t + step];
        }
        if (t == 0) sums[row] = mine[0];
        sync_half(which);
    }
}

int main() {
    const auto x = numbers<int>(3 * half);
    std::vector<int> want(3);
    for (int i = 0; i < 3 * half; ++i) want[i / half] += x[i];

    int* sums = device_array<int>(3);
    row_sums<<<1, block>>>(to_device(x), sums);
    finish();
    return check(to_host(sums, 3), want);
}
