// what: hipcub::WarpReduce of the default width adds up two of the program's 32-thread groups
// expect: wrong | SX201 | SX204
// widths: 64
// pitfall: 40
// sanitizer: none
// group: width
#include <hip/hip_runtime.h>
#include <hipcub/hipcub.hpp>

#include "check.h"

constexpr int block = 128, group = 32;  // threads that share a row

__global__ void row_sums(const int* x, int* sums) {
#ifdef BUG
    using Reduce = hipcub::WarpReduce<int>;
#else
    using Reduce = hipcub::WarpReduce<int, group>;
#endif
    __shared__ typename Reduce::TempStorage storage[block / group];
    const int warp = threadIdx.x / group, i = blockIdx.x * block + threadIdx.x;
    const int sum = Reduce(storage[warp]).Sum(x[i]);
    if (threadIdx.x % group == 0) sums[i / group] = sum;
}

int main() {
    constexpr int n = 3 * block;
    const auto x = numbers<int>(n);
    std::vector<int> want(n / group);
    for (int i = 0; i < n; ++i) want[i / group] += x[i];

    int* sums = device_array<int>(n / group);
    row_sums<<<3, block>>>(to_device(x), sums);
    finish();
    return check(to_host(sums, n / group), want);
}
