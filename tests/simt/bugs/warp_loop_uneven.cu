// what: lanes leave a loop of warp votes one by one although the mask keeps naming all of them
// expect: SX303 | SX306
// widths: 32 64
// pitfall: 13
// sanitizer: none
// group: convergence
// checks: hangs
#include <cuda_runtime.h>

#include "check.h"

// Collatz steps until every lane's number has come down to 1; each lane's count of its own.
__global__ void collatz(const int* x, int* steps, int* rounds) {
    int value = x[threadIdx.x], taken = 0, warp_rounds = 0;
#ifdef BUG
    while (value != 1) {
        __any_sync(0xffffffff, value != 1);
#else
    while (__any_sync(0xffffffff, value != 1)) {
#endif
        ++warp_rounds;
        if (value == 1) continue;
        value = value % 2 ? 3 * value + 1 : value / 2;
        ++taken;
    }
    __syncthreads();
    steps[threadIdx.x] = taken;
    atomicMax(rounds, warp_rounds);
}

int main() {
    constexpr int n = 64;
    std::vector<int> x(n), want(n), most(1);
    for (int i = 0; i < n; ++i) {
        x[i] = i + 1;
        for (int value = x[i]; value != 1; ++want[i]) value = value % 2 ? 3 * value + 1 : value / 2;
        most[0] = std::max(most[0], want[i]);
    }
    int *steps = device_array<int>(n), *rounds = device_zeros<int>(1);
    collatz<<<1, n>>>(to_device(x), steps, rounds);
    finish();
    return check(to_host(steps, n), want) | check(to_host(rounds, 1), most);
}
