// mechanism: a thread waits for a number that nobody writes
// backend: cuda
// op: relu
// run_s: 10
// expect: timed_out
// says: took longer than
// emulator: timed_out | crashed
__global__ void relu_kernel(const scalar_t* x, volatile scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
    if (i == 0)
        while (y[0] >= 0.0f) __threadfence();
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
