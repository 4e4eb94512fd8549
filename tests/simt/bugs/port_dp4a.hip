// what: four int8 products at a time come from __dp4a
// expect: build
// widths: 32 64
// pitfall: 29
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

__device__ int dot4(int a, int b, int sum) {
#ifdef BUG
    return __dp4a(a, b, sum);
#else
    for (int shift = 0; shift < 32; shift += 8)
        sum += (signed char)(a >> shift) * (signed char)(b >> shift);
    return sum;
#endif
}

__global__ void row_dots(const int* a, const int* x, int* y, int rows, int words) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int sum = 0;
    for (int w = 0; w < words; ++w) sum = dot4(a[row * words + w], x[w], sum);
    y[row] = sum;
}

int main() {
    constexpr int rows = 70, words = 9;
    const auto packed = numbers<int>((rows + 1) * words, 65521);
    std::vector<int> a(packed.begin() + words, packed.end()), x(words), want(rows);
    for (int& word : a) word *= 30011;
    for (int w = 0; w < words; ++w) x[w] = packed[w] * 25013;
    for (int i = 0; i < rows * words; ++i)
        for (int shift = 0; shift < 32; shift += 8)
            want[i / words] += (signed char)(a[i] >> shift) * (signed char)(x[i % words] >> shift);

    int* y = device_array<int>(rows);
    row_dots<<<2, 64>>>(to_device(a), to_device(x), y, rows, words);
    finish();
    return check(to_host(y, rows), want);
}
