// what: compare-exchange steps of a bitonic sort run without a barrier between them
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int n = 256;

__global__ void sort(int* keys) {
    __shared__ int s[n];
    const int t = threadIdx.x;
    s[t] = keys[t];
    for (int size = 2; size <= n; size *= 2) {
        for (int stride = size / 2; stride > 0; stride /= 2) {
#ifdef BUG
            if (stride == size / 2) __syncthreads();
#else
            __syncthreads();
#endif
            const int other = t ^ stride;
            if (other > t && (s[t] > s[other]) == ((t & size) == 0)) {
                const int key = s[t];
                s[t] = s[other];
                s[other] = key;
            }
        }
    }
    __syncthreads();
    keys[t] = s[t];
}

int main() {
    const auto keys = numbers<int>(n, 1999);
    auto want = keys;
    std::sort(want.begin(), want.end());

    int* device = to_device(keys);
    sort<<<1, n>>>(device);
    finish();
    return check(to_host(device, n), want);
}
