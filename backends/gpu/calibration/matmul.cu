// The calibration kernel of GPUs: a product by tiles in shared memory, whose text never changes.
// What its time moves by is the machine's doing, as long as its machine code is the same too.
#define TILE 16

__global__ void calibration(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m,
                            int64_t n, int64_t k) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int64_t row = int64_t(blockIdx.y) * TILE + y, column = int64_t(blockIdx.x) * TILE + x;
    float sum = 0.0f;
    for (int64_t first = 0; first < k; first += TILE) {
        left[y][x] = row < m && first + x < k ? float(a[row * k + first + x]) : 0.0f;
        right[y][x] = first + y < k && column < n ? float(b[(first + y) * n + column]) : 0.0f;
        __syncthreads();
        for (int at = 0; at < TILE; ++at) sum += left[y][at] * right[at][x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = scalar_t(sum);
}

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k, cudaStream_t stream) {
    const dim3 blocks((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
    calibration<<<blocks, dim3(TILE, TILE), 0, stream>>>(a, b, c, m, n, k);
    return int(cudaGetLastError());
}
