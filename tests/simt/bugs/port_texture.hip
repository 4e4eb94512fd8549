// what: an image is read through a texture object, for which CDNA has no hardware
// expect: build SX003
// widths: 64
// pitfall: 45
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

#ifdef BUG
using Image = hipTextureObject_t;
__device__ float pixel(Image image, int i) { return tex1Dfetch<float>(image, i); }
#else
using Image = const float*;
__device__ float pixel(Image image, int i) { return image[i]; }
#endif

__global__ void downsample(Image image, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = pixel(image, 2 * i) + pixel(image, 2 * i + 1);
}

int main() {
    constexpr int n = 150;
    const auto x = numbers<float>(2 * n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i) want[i] = x[2 * i] + x[2 * i + 1];

    float *device = to_device(x), *out = device_array<float>(n);
#ifdef BUG
    hipResourceDesc resource = {};
    resource.resType = hipResourceTypeLinear;
    resource.res.linear.devPtr = device;
    resource.res.linear.desc = hipCreateChannelDesc<float>();
    resource.res.linear.sizeInBytes = 2 * n * sizeof(float);
    hipTextureDesc sampling = {};
    Image image = {};
    CHECK_HIP(hipCreateTextureObject(&image, &resource, &sampling, nullptr));
#else
    const Image image = device;
#endif
    downsample<<<2, 128>>>(image, out, n);
    finish();
    return check(to_host(out, n), want);
}
