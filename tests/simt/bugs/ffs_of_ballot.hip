// what: the leader is found by __ffs of a ballot's lower half, which can be empty
// expect: wrong | SX306
// widths: 64
// pitfall: 6
// sanitizer: none
// group: width
#include <hip/hip_runtime.h>

#include "check.h"

// The first value of each warp that exceeds the limit, for all of its lanes; -1 if there is none.
__global__ void first_above(const int* x, int* y, int limit) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned long long votes = __ballot(x[i] > limit);
#ifdef BUG
    const int leader = __ffs(int(votes)) - 1;
#else
    const int leader = __ffsll(votes) - 1;
#endif
    const int found = __shfl(x[i], leader < 0 ? 0 : leader);
    y[i] = leader < 0 ? -1 : found;
}

int main() {
    constexpr int n = 384, limit = 97;
    const int lanes = lanes_per_warp();
    const auto x = numbers<int>(n);
    std::vector<int> want(n, -1);
    for (int i = n - 1; i >= 0; --i)
        if (x[i] > limit)
            for (int k = i / lanes * lanes; k < (i / lanes + 1) * lanes; ++k) want[k] = x[i];

    int* y = device_array<int>(n);
    first_above<<<3, 128>>>(to_device(x), y, limit);
    finish();
    return check(to_host(y, n), want);
}
