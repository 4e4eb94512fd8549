// mechanism: reads the partial sums of other warps before they are there
// backend: cuda
// op: sum
// expect: wrong
// says: elements are off | NaN or infinity | two calls
// emulator: passed | wrong
__global__ void sum_kernel(const scalar_t* x, scalar_t* y, int64_t reduce, int64_t inner) {
    __shared__ volatile float partial[16];
    const int64_t at = blockIdx.x;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const scalar_t* from = x + (at / inner * reduce) * inner + at % inner;
    if (threadIdx.x < 16) partial[threadIdx.x] = -1.0f;
    __syncthreads();
    float total = 0.0f;
    for (int64_t r = lane; r < reduce; r += 32)  // the later the warp, the longer it takes
        if (r / 32 % 16 <= warp) total += r / 32 % 16 == warp ? from[r * inner] : 0.0f * r;
    for (int d = 16; d > 0; d /= 2) total += __shfl_xor_sync(~0u, total, d);
    if (lane == 0) partial[warp] = total;
    // __syncthreads() belongs here
    if (threadIdx.x == 0) {
        float all = 0.0f;
        for (int w = 0; w < 16; ++w) all += partial[w];
        y[at] = all;
    }
}

extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner,
                   cudaStream_t stream) {
    if (outer * inner == 0) return 0;
    sum_kernel<<<(unsigned)(outer * inner), 512, 0, stream>>>(x, y, reduce, inner);
    return (int)cudaGetLastError();
}
