// what: ints follow an odd number of bytes in dynamic shared memory
// expect: SX106
// widths: 32 64
// pitfall: 54
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

// Ranks of the distinct symbols of a short text: how many smaller ones occur in it.
__global__ void ranks(const unsigned char* text, int* rank, int n) {
    extern __shared__ __align__(16) unsigned char scratch[];
    unsigned char* s = scratch;
#ifdef BUG
    int* present = reinterpret_cast<int*>(scratch + n);
#else
    int* present = reinterpret_cast<int*>(scratch + (n + 15) / 16 * 16);
#endif
    for (int i = threadIdx.x; i < 32; i += blockDim.x) present[i] = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = text[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicExch(&present[s[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int below = 0;
        for (int c = 0; c < s[i]; ++c) below += present[c];
        rank[i] = below;
    }
}

int main() {
    constexpr int n = 77, symbols = 32;
    auto text = numbers<unsigned char>(n, symbols);
    for (unsigned char& c : text) c = c / 3 * 3;
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i)
        for (int c = 0; c < text[i]; ++c) want[i] += std::count(text.begin(), text.end(), c) > 0;

    int* rank = device_array<int>(n);
    const size_t bytes = (n + 15) / 16 * 16 + symbols * sizeof(int);
    ranks<<<1, 64, bytes>>>(to_device(text), rank, n);
    finish();
    return check(to_host(rank, n), want);
}
