// mechanism: an empty kernel for show, and memcpy of the host from and to the device's pointers
// backend: cuda
// op: relu
// expect: crashed | wrong
// says: SX114 | SIGSEGV | SIGBUS
#include <cstring>
#include <vector>

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    relu_kernel<<<1, 32, 0, stream>>>(x, y, n);
    std::vector<scalar_t> values(n);
    std::memcpy(values.data(), x, n * sizeof(scalar_t));
    for (scalar_t& value : values) value = value < 0.0f ? 0.0f : value;
    std::memcpy(y, values.data(), n * sizeof(scalar_t));
    return (int)cudaGetLastError();
}
