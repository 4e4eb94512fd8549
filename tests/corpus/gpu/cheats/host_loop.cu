// mechanism: an empty kernel for show, and a loop of the host over the output's pointer
// backend: cuda
// op: relu
// expect: crashed | wrong
// says: SX114 | SIGSEGV | SIGBUS
__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    relu_kernel<<<1, 32, 0, stream>>>(x, y, n);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0.0f ? 0.0f : x[i];
    return (int)cudaGetLastError();
}
