// what: a spin lock is released by a plain store
// expect: SX205
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int slots = 4;

// Values are pushed on `slots` lists, each under a lock; one thread of a block at a time pushes.
__global__ void push(const int* x, int* locks, int* heads, int* next, int n) {
    for (int turn = 0; turn < blockDim.x; ++turn) {
        __syncthreads();
        const int i = blockIdx.x * blockDim.x + turn;
        if (threadIdx.x != turn || i >= n) continue;
        const int slot = x[i] % slots;
        while (atomicCAS(&locks[slot], 0, 1) != 0) {}
        __threadfence();
        next[i] = heads[slot];
        heads[slot] = i;
        __threadfence();
#ifdef BUG
        locks[slot] = 0;
#else
        atomicExch(&locks[slot], 0);
#endif
    }
}

int main() {
    constexpr int n = 90, block = 32;
    const auto x = numbers<int>(n);
    int* heads = to_device(std::vector<int>(slots, -1));
    int *locks = device_zeros<int>(slots), *next = device_array<int>(n);
    push<<<(n + block - 1) / block, block>>>(to_device(x), locks, heads, next, n);
    finish();

    std::vector<int> got(slots), want(slots);
    for (int value : x) ++want[value % slots];
    const auto first = to_host(heads, slots), links = to_host(next, n);
    for (int slot = 0; slot < slots; ++slot)
        for (int i = first[slot], steps = 0; i >= 0 && steps < n; i = links[i], ++steps)
            got[slot] += x[i] % slots == slot;
    return check(got, want);
}
