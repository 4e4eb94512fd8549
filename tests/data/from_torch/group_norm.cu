#include <portkern/portable.h>

constexpr int64_t GROUPS = 8;

__global__ void groups_of(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                          scalar_t* y, int64_t all, int64_t channels, int64_t area) {
    const int64_t g = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (g >= all) return;
    const int64_t size = channels * area;
    const scalar_t* in = x + g * size;
    float mean = 0.0f, variance = 0.0f;
    for (int64_t i = 0; i < size; ++i) mean += float(in[i]);
    mean /= float(size);
    for (int64_t i = 0; i < size; ++i) {
        const float off = float(in[i]) - mean;
        variance += off * off;
    }
    const float scale = 1.0f / sqrtf(variance / float(size) + 1e-5f);
    for (int64_t i = 0; i < size; ++i) {
        const int64_t c = g % GROUPS * channels + i / area;
        y[g * size + i] =
            scalar_t((float(in[i]) - mean) * scale * float(weight[c]) + float(bias[c]));
    }
}

extern "C" int group_norm(const scalar_t* x, const scalar_t* norm_weight,
                          const scalar_t* norm_bias, scalar_t* y, int64_t batch_size,
                          int64_t features, int64_t height, int64_t width, cudaStream_t stream) {
    const int64_t all = batch_size * GROUPS;
    if (all * features * height * width == 0) return 0;
    groups_of<<<unsigned((all + 31) / 32), 32, 0, stream>>>(
        x, norm_weight, norm_bias, y, all, features / GROUPS, height * width);
    return int(cudaGetLastError());
}
