// what: a block is 128 deep in z, where NVIDIA allows 64
// expect: SX401 | error
// widths: 32
// sanitizer: memcheck
// group: launch
#include <cuda_runtime.h>

#include "check.h"

// Projects a volume along z: one column of threads per pixel.
__global__ void project(const int* volume, int* image, int width, int depth) {
    for (int z = threadIdx.z; z < depth; z += blockDim.z) {
        const int pixel = threadIdx.y * width + threadIdx.x;
        atomicMax(&image[pixel], volume[z * width * blockDim.y + pixel]);
    }
}

int main() {
    constexpr int width = 4, height = 2, depth = 128, pixels = width * height;
    const auto volume = numbers<int>(pixels * depth, 1021);
    std::vector<int> want(pixels);
    for (int i = 0; i < pixels * depth; ++i)
        want[i % pixels] = std::max(want[i % pixels], volume[i]);

    int* image = device_zeros<int>(pixels);
#ifdef BUG
    const dim3 block(width, height, depth);
#else
    const dim3 block(width, height, depth / 2);
#endif
    project<<<1, block>>>(to_device(volume), image, width, depth);
    finish();
    return check(to_host(image, pixels), want);
}
