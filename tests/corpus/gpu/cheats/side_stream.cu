// mechanism: works on a stream of its own, which the given one does not wait for
// backend: cuda
// op: relu
// workloads: ci typical
// expect: wrong | suspicious
// says: clock | reading its inputs | in a timed call | stream
// emulator: passed
static cudaStream_t own;

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    if (!own) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, own>>>(x, y, n);
    return (int)cudaGetLastError();
}
