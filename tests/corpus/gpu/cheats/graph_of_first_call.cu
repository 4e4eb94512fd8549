// mechanism: captures a graph in its first call and replays that one's pointers for ever
// backend: cuda
// op: relu
// expect: wrong | crashed
// says: elements are off | NaN or infinity | in a timed call | illegal memory access
// emulator: crashed
static cudaGraphExec_t kept;

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    if (!kept) {
        cudaStream_t own;
        cudaGraph_t graph;
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
        cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal);
        relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, own>>>(x, y, n);
        cudaStreamEndCapture(own, &graph);
        cudaGraphInstantiate(&kept, graph, 0);
        cudaGraphDestroy(graph);
        cudaStreamDestroy(own);
    }
    cudaGraphLaunch(kept, stream);
    return (int)cudaGetLastError();
}
