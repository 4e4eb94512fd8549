// mechanism: multiplies on tensor cores in TF32 and hands float32 back
// backend: cuda
// op: matmul
// expect: wrong
// says: elements are off | in norm
#include <mma.h>

using namespace nvcuda::wmma;

// A warp computes 16 x 16 elements, 8 products of each at a time.
__global__ void matmul_kernel(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m,
                              int64_t n, int64_t k, int64_t across) {
    __shared__ float left[16 * 8], right[8 * 16], result[16 * 16];
    const int64_t row0 = blockIdx.x / across * 16, column0 = blockIdx.x % across * 16;
    fragment<accumulator, 16, 16, 8, float> sums;
    fill_fragment(sums, 0.0f);
    for (int64_t depth = 0; depth < k; depth += 8) {
        for (int i = threadIdx.x; i < 128; i += 32) {
            const int64_t row = row0 + i / 8, down = depth + i % 8;
            left[i] = row < m && down < k ? a[row * k + down] : 0.0f;
            const int64_t across_k = depth + i / 16, column = column0 + i % 16;
            right[i] = across_k < k && column < n ? b[across_k * n + column] : 0.0f;
        }
        __syncwarp();
        fragment<matrix_a, 16, 16, 8, precision::tf32, row_major> x;
        fragment<matrix_b, 16, 16, 8, precision::tf32, row_major> y;
        load_matrix_sync(x, left, 8);
        load_matrix_sync(y, right, 16);
        for (int i = 0; i < x.num_elements; ++i) x.x[i] = __float_to_tf32(x.x[i]);
        for (int i = 0; i < y.num_elements; ++i) y.x[i] = __float_to_tf32(y.x[i]);
        mma_sync(sums, x, y, sums);
        __syncwarp();
    }
    store_matrix_sync(result, sums, 16, mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) {
        const int64_t row = row0 + i / 16, column = column0 + i % 16;
        if (row < m && column < n) c[row * n + column] = result[i];
    }
}

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k, cudaStream_t stream) {
    if (m * n == 0) return 0;
    const int64_t across = (n + 15) / 16;
    matmul_kernel<<<(unsigned)((m + 15) / 16 * across), 32, 0, stream>>>(a, b, c, m, n, k, across);
    return (int)cudaGetLastError();
}
