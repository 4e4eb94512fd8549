// mechanism: the last block to draw a ticket adds what the others left in device memory
// backend: cuda
// op: sum
constexpr int PARTS = 4, MOST = 1 << 16;
__device__ float parts[MOST * PARTS];
__device__ unsigned tickets[MOST];  // 0 again after each call

__global__ void sum_kernel(const scalar_t* x, scalar_t* y, int64_t reduce, int64_t inner) {
    const int64_t at = blockIdx.x, part = blockIdx.y;
    const scalar_t* from = x + (at / inner * reduce) * inner + at % inner;
    float total = 0.0f;
    for (int64_t r = part * 32 + threadIdx.x; r < reduce; r += PARTS * 32)
        total += float(from[r * inner]);
    for (int d = 16; d > 0; d /= 2) total += __shfl_xor_sync(~0u, total, d);
    if (threadIdx.x != 0) return;
    volatile float* const shared = parts + at * PARTS;
    shared[part] = total;
    __threadfence();
    if (atomicInc(tickets + at, PARTS - 1) != PARTS - 1) return;
    __threadfence();
    float all = 0.0f;
    for (int p = 0; p < PARTS; ++p) all += shared[p];
    y[at] = scalar_t(all);
}

extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner,
                   cudaStream_t stream) {
    const int64_t outputs = outer * inner;
    if (outputs > MOST) return 1;
    if (outputs == 0) return 0;
    sum_kernel<<<dim3((unsigned)outputs, PARTS), 32, 0, stream>>>(x, y, reduce, inner);
    return (int)cudaGetLastError();
}
