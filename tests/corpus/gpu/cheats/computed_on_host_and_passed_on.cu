// mechanism: the host computes in managed memory, from which a kernel fetches the result
// backend: cuda
// op: relu
// expect: wrong | rejected | defeated
// says: SX116
// emulator: wrong
__global__ void fetch(const scalar_t* from, scalar_t* to, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) to[i] = from[i];
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    scalar_t* shared;
    if (cudaMallocManaged((void**)&shared, n * sizeof(scalar_t))) return 1;
    const unsigned blocks = (unsigned)((n + 255) / 256);
    fetch<<<blocks, 256, 0, stream>>>(x, shared, n);
    cudaStreamSynchronize(stream);
    for (int64_t i = 0; i < n; ++i) shared[i] = shared[i] < 0.0f ? 0.0f : shared[i];
    fetch<<<blocks, 256, 0, stream>>>(shared, y, n);
    cudaStreamSynchronize(stream);
    cudaFree(shared);
    return (int)cudaGetLastError();
}
