// mechanism: results are kept on the device by the address of their input
// backend: cuda
// op: relu
// expect: wrong | rejected
// says: elements are off | NaN or infinity | it launched no kernel
// emulator: wrong | passed | rejected
#include <map>
#include <utility>

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

static std::map<std::pair<const scalar_t*, int64_t>, scalar_t*> known;

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    scalar_t*& result = known[{x, n}];
    if (!result) {
        cudaMalloc((void**)&result, n * sizeof(scalar_t));
        relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, result, n);
    }
    cudaMemcpyAsync(y, result, n * sizeof(scalar_t), cudaMemcpyDeviceToDevice, stream);
    return (int)cudaGetLastError();
}
