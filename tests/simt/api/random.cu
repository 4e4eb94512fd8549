// cuRAND's generators in kernels: Philox draws a device's numbers (those below are cuRAND's), the
// others numbers of the same distributions.
#include <curand_kernel.h>

#include <cmath>
#include <vector>

#include "expect.h"

struct Drawn {
    unsigned whole[6];
    float uniform[2], normal[3];
    double uniform_double;
};

template <class State>
__global__ void draw(unsigned long long seed, unsigned long long subsequence,
                     unsigned long long offset, Drawn* out) {
    State state;
    curand_init(seed, subsequence, offset, &state);
    for (unsigned& x : out->whole) x = curand(&state);
    curand_init(seed, subsequence, offset, &state);
    for (float& x : out->uniform) x = curand_uniform(&state);
    for (float& x : out->normal) x = curand_normal(&state);
    curand_init(seed, subsequence, offset, &state);
    out->uniform_double = curand_uniform_double(&state);
}
template <class State>
static Drawn drawn(unsigned long long seed, unsigned long long subsequence,
                   unsigned long long offset) {
    Drawn* out;
    cudaMallocManaged(&out, sizeof *out);
    draw<State><<<1, 1>>>(seed, subsequence, offset, out);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    const Drawn host = *out;
    cudaFree(out);
    return host;
}
static bool near(double a, double b) { return std::fabs(a - b) < 1e-6; }

static void philox() {
    const Drawn a = drawn<curandStatePhilox4_32_10_t>(1234, 5, 0);
    const unsigned whole[] = {0xf942741c, 0xb7a11b7a, 0x8b27a0cc, 0xbd95acc8, 0x5c5cf6f4,
                              0x3fc0ce58};
    for (int i = 0; i < 6; ++i) EXPECT(a.whole[i] == whole[i]);
    EXPECT(near(a.uniform[0], 0.973670244) && near(a.uniform[1], 0.717302024));
    EXPECT(std::fabs(a.uniform_double - 0.97367025096900761) < 1e-15);
    const Drawn b = drawn<curandStatePhilox4_32_10_t>(1234, 5, 3);
    EXPECT(b.whole[0] == whole[3] && b.whole[2] == whole[5]);
    const Drawn far = drawn<curandStatePhilox4_32_10_t>(0x123456789abcdef, 0x1122334455, 1000001);
    EXPECT(far.whole[0] == 0x8d88166b && far.whole[5] == 0xfdca365e);
}

__global__ void fill(float* uniform, float* normal, int each) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    curandState state;
    curand_init(42, i, 0, &state);
    for (int k = 0; k < each; ++k) {
        uniform[i * each + k] = curand_uniform(&state);
        normal[i * each + k] = curand_normal(&state);
    }
}

static void distributions() {
    const int threads = 512, each = 40, n = threads * each;
    float *uniform, *normal;
    cudaMallocManaged(&uniform, n * sizeof(float));
    cudaMallocManaged(&normal, n * sizeof(float));
    fill<<<2, threads / 2>>>(uniform, normal, each);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    double sum = 0, squares = 0, normal_sum = 0, normal_squares = 0;
    for (int i = 0; i < n; ++i) {
        EXPECT(uniform[i] > 0 && uniform[i] <= 1);
        sum += uniform[i];
        squares += (uniform[i] - 0.5) * (uniform[i] - 0.5);
        normal_sum += normal[i];
        normal_squares += normal[i] * normal[i];
    }
    // Five standard errors of each.
    EXPECT(std::fabs(sum / n - 0.5) < 5 * 0.2887 / std::sqrt(n));
    EXPECT(std::fabs(squares / n - 1.0 / 12) < 5 * 0.0745 / std::sqrt(n));
    EXPECT(std::fabs(normal_sum / n) < 5 / std::sqrt(n));
    EXPECT(std::fabs(normal_squares / n - 1) < 5 * 1.4142 / std::sqrt(n));
    cudaFree(uniform);
    cudaFree(normal);
    const Drawn a = drawn<curandState>(1, 0, 0), b = drawn<curandState>(1, 1, 0);
    const Drawn later = drawn<curandState>(1, 0, 2), other = drawn<curandState>(2, 0, 0);
    EXPECT(a.whole[2] == later.whole[0] && a.whole[0] != b.whole[0]);
    EXPECT(a.whole[0] != other.whole[0]);
}

int main() {
    philox();
    distributions();
    return unmet != 0;
}
