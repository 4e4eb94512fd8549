// what: a double inside a packed record is read through an aligned pointer
// expect: SX106
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cstring>
#include <cuda_runtime.h>

#include "check.h"

constexpr int record = 12;  // bytes: an int key, then a double that begins at byte 4

__global__ void weights_of_even_keys(const unsigned char* records, double* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned char* at = records + i * record;
    const int key = *reinterpret_cast<const int*>(at);
    double weight;
#ifdef BUG
    weight = *reinterpret_cast<const double*>(at + 4);
#else
    memcpy(&weight, at + 4, sizeof weight);
#endif
    out[i] = key % 2 == 0 ? weight : 0;
}

int main() {
    constexpr int n = 200;
    const auto keys = numbers<int>(n);
    std::vector<unsigned char> records(n * record);
    std::vector<double> want(n);
    for (int i = 0; i < n; ++i) {
        const double weight = i / 4.0;
        std::memcpy(&records[i * record], &keys[i], 4);
        std::memcpy(&records[i * record + 4], &weight, 8);
        want[i] = keys[i] % 2 == 0 ? weight : 0;
    }
    double* out = device_array<double>(n);
    weights_of_even_keys<<<2, 128>>>(to_device(records), out, n);
    finish();
    return check(to_host(out, n), want);
}
