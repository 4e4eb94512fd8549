// what: the last block waits for a count that it should have raised itself
// expect: SX405 | SX303
// widths: 32 64
// sanitizer: none
// group: convergence
// checks: hangs
#include <cuda_runtime.h>

#include "check.h"

// The block that arrives last adds up, once all have said that their value is there.
__global__ void gather(const int* x, int* partial, int* arrivals, int* raised, int* total) {
    if (threadIdx.x != 0) return;
    const int me = atomicAdd(arrivals, 1), blocks = gridDim.x;
    partial[me] = x[me];
    __threadfence();
#ifdef BUG
    if (me < blocks - 1) atomicAdd(raised, 1);
#else
    atomicAdd(raised, 1);
#endif
    if (me != blocks - 1) return;
    while (atomicAdd(raised, 0) < blocks) {}
    __threadfence();
    int sum = 0;
    for (int b = 0; b < blocks; ++b) sum += partial[b];
    *total = sum;
}

int main() {
    constexpr int blocks = 8;
    const auto x = numbers<int>(blocks);
    std::vector<int> want(1);
    for (int value : x) want[0] += value;

    int *partial = device_array<int>(blocks), *total = device_zeros<int>(1);
    int *arrivals = device_zeros<int>(1), *raised = device_zeros<int>(1);
    gather<<<blocks, 32>>>(to_device(x), partial, arrivals, raised, total);
    finish();
    return check(to_host(total, 1), want);
}
