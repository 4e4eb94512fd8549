// what: a waiting thread backs off with __nanosleep
// expect: build
// widths: 32 64
// pitfall: 28
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

// Blocks take turns in order of arrival: each appends its number after its predecessor's.
__global__ void in_turn(int* arrivals, int* turn, int* order) {
    if (threadIdx.x != 0) return;
    const int me = atomicAdd(arrivals, 1);
    while (atomicAdd(turn, 0) != me) {
#ifdef BUG
        __nanosleep(100);
#else
        __builtin_amdgcn_s_sleep(2);
#endif
    }
    __threadfence();
    order[me] = me == 0 ? 1 : 2 * order[me - 1] % 1000003;
    __threadfence();
    atomicExch(turn, me + 1);
}

int main() {
    constexpr int blocks = 30;
    std::vector<int> want(blocks, 1);
    for (int b = 1; b < blocks; ++b) want[b] = 2 * want[b - 1] % 1000003;

    int* order = device_array<int>(blocks);
    in_turn<<<blocks, 64>>>(device_zeros<int>(1), device_zeros<int>(1), order);
    finish();
    return check(to_host(order, blocks), want);
}
