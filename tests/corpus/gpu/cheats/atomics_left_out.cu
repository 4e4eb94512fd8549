// mechanism: blocks add to one place without an atomic, and lose each other's terms
// backend: cuda
// op: sum
// expect: wrong
// says: elements are off | two calls
// emulator: passed | wrong
__global__ void sum_kernel(const scalar_t* x, volatile scalar_t* y, int64_t reduce, int64_t inner) {
    const int64_t at = blockIdx.x / 32, part = blockIdx.x % 32;
    const scalar_t* from = x + (at / inner * reduce) * inner + at % inner;
    float total = 0.0f;
    for (int64_t r = part * 32 + threadIdx.x; r < reduce; r += 32 * 32) total += from[r * inner];
    for (int d = 16; d > 0; d /= 2) total += __shfl_xor_sync(~0u, total, d);
    if (threadIdx.x == 0) y[at] = y[at] + total;
}

extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner,
                   cudaStream_t stream) {
    if (outer * inner == 0) return 0;
    cudaMemsetAsync(y, 0, outer * inner * sizeof(scalar_t), stream);
    sum_kernel<<<(unsigned)(outer * inner * 32), 32, 0, stream>>>(x, y, reduce, inner);
    return (int)cudaGetLastError();
}
