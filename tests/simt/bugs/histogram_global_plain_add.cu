// what: counters in global memory are incremented without atomics
// expect: SX203 | SX202
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

struct Counts {
    unsigned bin[8];
    unsigned long long total;
};

__global__ void count(const unsigned char* x, Counts* counts, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned* bin = &counts->bin[x[i] & 7];
#ifdef BUG
        ++*bin;
#else
        atomicAdd(bin, 1u);
#endif
        atomicAdd(&counts->total, (unsigned long long)x[i]);
    }
}

int main() {
    constexpr int n = 2500;
    const auto x = numbers<unsigned char>(n, 251);
    std::vector<double> want(9);
    for (unsigned char value : x) {
        want[value & 7] += 1;
        want[8] += value;
    }
    Counts* counts = device_zeros<Counts>(1);
    count<<<3, 256>>>(to_device(x), counts, n);
    finish();
    const Counts sum = to_host(counts, 1)[0];
    std::vector<double> got(sum.bin, sum.bin + 8);
    got.push_back(double(sum.total));
    return check(got, want);
}
