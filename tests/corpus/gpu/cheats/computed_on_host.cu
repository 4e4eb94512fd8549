// mechanism: the host computes on a copy of the inputs and copies the result into the output
// backend: cuda
// op: relu
// expect: rejected | suspicious | defeated
// emulator: wrong
// says: no kernel | in rounds of
#include <vector>

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    relu_kernel<<<1, 32, 0, stream>>>(x, y, n);
    std::vector<scalar_t> values(n);
    cudaMemcpyAsync(values.data(), x, n * sizeof(scalar_t), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    for (scalar_t& value : values) value = value < 0.0f ? 0.0f : value;
    cudaMemcpyAsync(y, values.data(), n * sizeof(scalar_t), cudaMemcpyHostToDevice, stream);
    cudaStreamSynchronize(stream);
    return (int)cudaGetLastError();
}
