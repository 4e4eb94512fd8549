// what: a tile is multiplied by nvcuda::wmma fragments
// expect: build | build SX005
// widths: 32 64
// pitfall: 20
// sanitizer: none
// group: porting
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#ifdef BUG
#include <mma.h>
#endif

#include "check.h"

constexpr int n = 16;

__global__ void square(const __half* a, float* c) {
#ifdef BUG
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, n, n, n, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, n, n, n, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, n, n, n, float> sum;
    wmma::fill_fragment(sum, 0);
    wmma::load_matrix_sync(left, a, n);
    wmma::load_matrix_sync(right, a, n);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(c, sum, n, wmma::mem_row_major);
#else
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
        float sum = 0;
        for (int k = 0; k < n; ++k)
            sum += __half2float(a[i / n * n + k]) * __half2float(a[k * n + i % n]);
        c[i] = sum;
    }
#endif
}

int main() {
    const auto x = numbers<float>(n * n, 23);
    std::vector<__half> a(n * n);
    std::vector<float> want(n * n);
    for (int i = 0; i < n * n; ++i) a[i] = __float2half(x[i]);
    for (int i = 0; i < n * n; ++i)
        for (int k = 0; k < n; ++k) want[i] += x[i / n * n + k] * x[k * n + i % n];

    float* c = device_array<float>(n * n);
    square<<<1, lanes_per_warp()>>>(to_device(a), c);
    finish();
    return check(to_host(c, n * n), want);
}
