// what: the mirrored element is read from shared memory before its owner wrote it
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

template <class T>
__global__ void reverse(T* x, int n) {
    extern __shared__ unsigned char raw[];
    T* s = reinterpret_cast<T*>(raw);
    const int t = threadIdx.x;
    if (t < n) s[t] = x[t];
#ifndef BUG
    __syncthreads();
#endif
    if (t < n) x[t] = s[n - 1 - t];
}

int main() {
    constexpr int n = 201;
    const auto x = numbers<double>(n);
    const std::vector<double> want(x.rbegin(), x.rend());

    double* device = to_device(x);
    reverse<double><<<1, 224, n * sizeof(double)>>>(device, n);
    finish();
    return check(to_host(device, n), want);
}
