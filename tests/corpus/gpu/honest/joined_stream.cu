// mechanism: works on a stream of its own, which events put between two works of the given one
// backend: cuda
// op: relu
__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    static cudaStream_t own;
    static cudaEvent_t begun, done;
    if (!own) {
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&begun, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    }
    cudaEventRecord(begun, stream);
    cudaStreamWaitEvent(own, begun, 0);
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, own>>>(x, y, n);
    cudaEventRecord(done, own);
    cudaStreamWaitEvent(stream, done, 0);
    return (int)cudaGetLastError();
}
