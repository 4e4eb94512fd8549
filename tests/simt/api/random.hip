// hipRAND's generators in kernels draw what cuRAND's do.
#include <hip/hip_runtime.h>
#include <hiprand/hiprand_kernel.h>

#include <cmath>

#include "expect.h"

template <class State>
__global__ void draw(unsigned* whole, float* floats) {
    State state;
    hiprand_init(1234, 5, 0, &state);
    for (int i = 0; i < 6; ++i) whole[i] = hiprand(&state);
    hiprand_init(1234, 5, 0, &state);
    floats[0] = hiprand_uniform(&state);
    floats[1] = hiprand_normal(&state);
}

__global__ void four(uint4* whole) {
    hiprandStatePhilox4_32_10_t state;
    hiprand_init(1234, 5, 0, &state);
    *whole = hiprand4(&state);
}

int main() {
    unsigned* whole;
    float* floats;
    uint4* vector;
    EXPECT(hipMallocManaged(&whole, 6 * sizeof *whole) == hipSuccess);
    EXPECT(hipMallocManaged(&floats, 2 * sizeof *floats) == hipSuccess);
    EXPECT(hipMallocManaged(&vector, sizeof *vector) == hipSuccess);
    draw<hiprandStatePhilox4_32_10_t><<<1, 1>>>(whole, floats);
    four<<<1, 1>>>(vector);
    EXPECT(hipDeviceSynchronize() == hipSuccess);
    const unsigned drawn[] = {0xf942741c, 0xb7a11b7a, 0x8b27a0cc, 0xbd95acc8, 0x5c5cf6f4,
                              0x3fc0ce58};
    for (int i = 0; i < 6; ++i) EXPECT(whole[i] == drawn[i]);
    EXPECT(vector->x == drawn[0] && vector->w == drawn[3]);
    EXPECT(std::fabs(floats[0] - 0.973670244) < 1e-6);
    draw<hiprandState><<<1, 1>>>(whole, floats);
    EXPECT(hipDeviceSynchronize() == hipSuccess);
    EXPECT(floats[0] > 0 && floats[0] <= 1);
    hipFree(whole), hipFree(floats), hipFree(vector);
    return 0;
}
