// what: bits of a shared bitmap are set with |= instead of atomicOr
// expect: SX201
// widths: 32 64
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int bits = 2048;

// Composite numbers below `bits`: thread t strikes out the multiples of t + 2.
__global__ void sieve(unsigned* composite) {
    __shared__ unsigned words[bits / 32];
    for (int w = threadIdx.x; w < bits / 32; w += blockDim.x) words[w] = 0;
    __syncthreads();
    const int p = threadIdx.x + 2;
    for (int m = 2 * p; m < bits; m += p) {
#ifdef BUG
        words[m / 32] |= 1u << m % 32;
#else
        atomicOr(&words[m / 32], 1u << m % 32);
#endif
    }
    __syncthreads();
    for (int w = threadIdx.x; w < bits / 32; w += blockDim.x) composite[w] = words[w];
}

int main() {
    std::vector<unsigned> want(bits / 32);
    for (int p = 2; p < bits; ++p)
        for (int m = 2 * p; m < bits; m += p) want[m / 32] |= 1u << m % 32;

    unsigned* composite = device_array<unsigned>(bits / 32);
    sieve<<<1, 64>>>(composite);
    finish();
    return check(to_host(composite, bits / 32), want);
}
