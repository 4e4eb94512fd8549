// what: the levels of a work-efficient scan's down-sweep run into each other
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int n = 512;  // two elements per thread

__global__ void exclusive_scan(int* x) {
    __shared__ int s[n];
    const int t = threadIdx.x;
    s[2 * t] = x[2 * t];
    s[2 * t + 1] = x[2 * t + 1];
    int stride = 1;
    for (int pairs = n / 2; pairs > 0; pairs /= 2, stride *= 2) {
        __syncthreads();
        if (t < pairs) s[stride * (2 * t + 2) - 1] += s[stride * (2 * t + 1) - 1];
    }
    if (t == 0) s[n - 1] = 0;
    for (int pairs = 1; pairs < n; pairs *= 2) {
        stride /= 2;
#ifndef BUG
        __syncthreads();
#endif
        if (t < pairs) {
            const int left = stride * (2 * t + 1) - 1, right = stride * (2 * t + 2) - 1;
            const int sum = s[left] + s[right];
            s[left] = s[right];
            s[right] = sum;
        }
    }
    __syncthreads();
    x[2 * t] = s[2 * t];
    x[2 * t + 1] = s[2 * t + 1];
}

int main() {
    const auto x = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 1; i < n; ++i) want[i] = want[i - 1] + x[i - 1];

    int* device = to_device(x);
    exclusive_scan<<<1, n / 2>>>(device);
    finish();
    return check(to_host(device, n), want);
}
