// what: blocks of 32 threads are reduced over warpSize lanes, of which half may not exist
// expect: SX306 | SX303
// widths: 64
// pitfall: 10
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

__global__ void list_lengths(const int* next, const int* heads, int* longest) {
    int length = 0;
    for (int at = heads[blockIdx.x * blockDim.x + threadIdx.x]; at >= 0; at = next[at]) ++length;
    for (int d = warpSize / 2; d > 0; d /= 2)
        length = max(length, __shfl_down_sync(0xffffffff, length, d));
    if (threadIdx.x == 0) longest[blockIdx.x] = length;
}

int main() {
    constexpr int lists = 128;
#ifdef BUG
    const int block = 32;
#else
    const int block = lanes_per_warp();
#endif
    std::vector<int> next, heads, want(lists / block);
    for (int i = 0; i < lists; ++i) {
        const int length = 1 + i * 5 % 13;
        heads.push_back(int(next.size()));
        for (int k = 1; k < length; ++k) next.push_back(int(next.size()) + 1);
        next.push_back(-1);
        want[i / block] = std::max(want[i / block], length);
    }
    int* longest = device_array<int>(lists / block);
    list_lengths<<<lists / block, block>>>(to_device(next), to_device(heads), longest);
    finish();
    return check(to_host(longest, lists / block), want);
}
