// what: the first thread looks at element -1 to see where a run begins
// expect: SX101
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

// begins[k] is where the rows of key k begin in a sorted list.
__global__ void run_starts(const int* keys, int* begins, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#ifdef BUG
    if (keys[i] != keys[i - 1]) begins[keys[i]] = i;
#else
    if (i == 0 || keys[i] != keys[i - 1]) begins[keys[i]] = i;
#endif
}

int main() {
    constexpr int n = 400, keys_each = 10;
    std::vector<int> keys(n), want(n / keys_each);
    for (int i = 0; i < n; ++i) keys[i] = i / keys_each;
    for (int k = 0; k < n / keys_each; ++k) want[k] = k * keys_each;

    int* begins = device_zeros<int>(n / keys_each);
    run_starts<<<4, 128>>>(to_device(keys), begins, n);
    finish();
    return check(to_host(begins, n / keys_each), want);
}
