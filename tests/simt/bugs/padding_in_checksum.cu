// what: a checksum over a struct's bytes takes in padding that nobody wrote
// expect: SX108
// widths: 32 64
// sanitizer: initcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

struct Item {
    char kind;  // and three bytes of padding
    int value;
};

__global__ void make(Item* items, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    items[i].kind = char(i % 3);
    items[i].value = 5 * i;
}

__global__ void checksum(const Item* items, unsigned* sum, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned own = 0;
#ifdef BUG
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(&items[i]);
    for (unsigned b = 0; b < sizeof(Item); ++b) own += bytes[b];
#else
    own = items[i].kind;
    for (int shift = 0; shift < 32; shift += 8) own += items[i].value >> shift & 255;
#endif
    atomicAdd(sum, own);
}

int main() {
    constexpr int n = 300;
    std::vector<unsigned> want(1);
    for (int i = 0; i < n; ++i) want[0] += i % 3 + (5 * i & 255) + (5 * i >> 8);

    Item* items = device_array<Item>(n);
    unsigned* sum = device_zeros<unsigned>(1);
    make<<<3, 128>>>(items, n);
    checksum<<<3, 128>>>(items, sum, n);
    finish();
    return check(to_host(sum, 1), want);
}
