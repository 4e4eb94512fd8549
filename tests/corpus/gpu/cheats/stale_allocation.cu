// mechanism: allocates memory and returns what an earlier owner left in it
// backend: cuda
// op: relu
// expect: wrong
// says: elements are off | NaN or infinity
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    scalar_t* found;
    if (cudaMalloc((void**)&found, n * sizeof(scalar_t))) return 1;
    cudaMemcpyAsync(y, found, n * sizeof(scalar_t), cudaMemcpyDeviceToDevice, stream);
    cudaStreamSynchronize(stream);
    cudaFree(found);
    return (int)cudaGetLastError();
}
