// what: the loop's shared "changed" flag is cleared while other threads have yet to read it
// expect: SX201 | SX205
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int n = 128;

// Smallest label of each run of equal keys, spread from neighbour to neighbour.
__global__ void label_runs(const int* keys, int* labels) {
    __shared__ int label[n], changed;
    const int t = threadIdx.x;
    const bool joined = t > 0 && keys[t] == keys[t - 1];
    label[t] = t;
    for (int again = 1; again;) {
        if (t == 0) changed = 0;
        __syncthreads();
        const int left = joined ? label[t - 1] : t;
        __syncthreads();
        if (left < label[t]) {
            label[t] = left;
            atomicOr(&changed, 1);
        }
        __syncthreads();
        again = changed;
#ifndef BUG
        __syncthreads();
#endif
    }
    labels[t] = label[t];
}

int main() {
    std::vector<int> keys(n), want(n);
    for (int i = 0; i < n; ++i) keys[i] = i / 9;
    for (int i = 0; i < n; ++i) want[i] = i > 0 && keys[i] == keys[i - 1] ? want[i - 1] : i;

    int* labels = device_array<int>(n);
    label_runs<<<1, n>>>(to_device(keys), labels);
    finish();
    return check(to_host(labels, n), want);
}
