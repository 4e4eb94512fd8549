// what: a look-back scan announces its sums through volatile, which orders nothing
// expect: SX203 | SX205
// widths: 32 64
// pitfall: 51
// sanitizer: none
// group: races
#include <hip/hip_runtime.h>

#include "check.h"

// Sums of tiles, chained in order of arrival: status and sum are two words.
__global__ void running_sums(const int* x, int* sums, int* ready, int* started, int length) {
    if (threadIdx.x != 0) return;
    const int me = atomicAdd(started, 1);
    int sum = 0;
    for (int i = 0; i < length; ++i) sum += x[me * length + i];
    if (me > 0) {
#ifdef BUG
        while (static_cast<volatile int*>(ready)[me - 1] == 0) {}
#else
        while (atomicAdd(&ready[me - 1], 0) == 0) {}
        __threadfence();
#endif
        sum += sums[me - 1];
    }
    sums[me] = sum;
#ifdef BUG
    static_cast<volatile int*>(ready)[me] = 1;
#else
    __threadfence();
    atomicExch(&ready[me], 1);
#endif
}

int main() {
    constexpr int tiles = 10, length = 20;
    const auto x = numbers<int>(tiles * length);
    std::vector<int> want(tiles);
    int sum = 0;
    for (int i = 0; i < tiles * length; ++i) want[i / length] = sum += x[i];

    int *sums = device_array<int>(tiles), *ready = device_zeros<int>(tiles);
    running_sums<<<tiles, 64>>>(to_device(x), sums, ready, device_zeros<int>(1), length);
    finish();
    return check(to_host(sums, tiles), want);
}
