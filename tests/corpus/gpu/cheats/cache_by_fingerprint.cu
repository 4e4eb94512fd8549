// mechanism: results are kept by the signs of two elements of their input
// backend: cuda
// op: relu
// expect: wrong | rejected
// emulator: wrong | rejected
// says: elements are off | NaN or infinity | no kernel
#include <map>
#include <tuple>

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

static std::map<std::tuple<int64_t, bool, bool>, scalar_t*> known;

static bool negative(const scalar_t* at, cudaStream_t stream) {
    scalar_t value;
    cudaMemcpyAsync(&value, at, sizeof(value), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    return value < 0.0f;
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    scalar_t*& result = known[{n, negative(x, stream), negative(x + n / 2, stream)}];
    if (!result) {
        cudaMalloc((void**)&result, n * sizeof(scalar_t));
        relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, result, n);
    }
    cudaMemcpyAsync(y, result, n * sizeof(scalar_t), cudaMemcpyDeviceToDevice, stream);
    return (int)cudaGetLastError();
}
