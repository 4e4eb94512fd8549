// what: items are taken from a queue in the launch that fills it, with no barrier between
// expect: SX203 | SX205 | SX202
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

__device__ void fill(const int* x, int* queue, int* size, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] % 5 == 0) queue[atomicAdd(size, 1)] = x[i];
}

__device__ void drain(const int* queue, const int* size, int* sum) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < *size) atomicAdd(sum, queue[i]);
}

#ifdef BUG
__global__ void fill_and_drain(const int* x, int* queue, int* size, int* sum, int n) {
    fill(x, queue, size, n);
    drain(queue, size, sum);
}
#else
__global__ void fill_queue(const int* x, int* queue, int* size, int n) { fill(x, queue, size, n); }
__global__ void drain_queue(const int* queue, int* size, int* sum) { drain(queue, size, sum); }
#endif

int main() {
    constexpr int n = 900, block = 128, blocks = (n + block - 1) / block;
    const auto values = numbers<int>(n);
    std::vector<int> want(1);
    for (int value : values) want[0] += value % 5 == 0 ? value : 0;

    int *x = to_device(values), *queue = device_array<int>(n);
    int *size = device_zeros<int>(1), *sum = device_zeros<int>(1);
#ifdef BUG
    fill_and_drain<<<blocks, block>>>(x, queue, size, sum, n);
#else
    fill_queue<<<blocks, block>>>(x, queue, size, n);
    drain_queue<<<blocks, block>>>(queue, size, sum);
#endif
    finish();
    return check(to_host(sum, 1), want);
}
