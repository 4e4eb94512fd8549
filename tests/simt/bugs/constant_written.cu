// what: a kernel normalises its filter in place although it lies in constant memory
// expect: SX111
// widths: 32 64
// sanitizer: none
// group: memory
#include <cuda_runtime.h>

#include "check.h"

constexpr int taps = 8;

#ifdef BUG
__constant__ float window[taps];
#else
__device__ float window[taps];
#endif

__global__ void normalise(float* out) {
    float sum = 0;
    for (int i = 0; i < taps; ++i) sum += window[i];
    __syncthreads();
    float* cell = const_cast<float*>(&window[threadIdx.x]);
    *cell /= sum;
    out[threadIdx.x] = *cell;
}

int main() {
    std::vector<float> want = {1, 2, 3, 4, 4, 3, 2, 1};
    CHECK_CUDA(cudaMemcpyToSymbol(window, want.data(), sizeof(window)));
    for (float& value : want) value /= 20;

    float* out = device_array<float>(taps);
    normalise<<<1, taps>>>(out);
    finish();
    return check(to_host(out, taps), want, 1e-6);
}
