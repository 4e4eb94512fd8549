#include <cmath>

extern "C" int group_norm(const scalar_t* x, const scalar_t* norm_weight,
                          const scalar_t* norm_bias, scalar_t* y, int64_t batch_size,
                          int64_t features, int64_t height, int64_t width) {
    constexpr int64_t GROUPS = 8;
    const int64_t area = height * width, channels = features / GROUPS, size = channels * area;
#pragma omp parallel for
    for (int64_t g = 0; g < batch_size * GROUPS; ++g) {
        const scalar_t* in = x + g * size;
        float mean = 0.0f, variance = 0.0f;
        for (int64_t i = 0; i < size; ++i) mean += float(in[i]);
        mean /= float(size);
        for (int64_t i = 0; i < size; ++i) {
            const float off = float(in[i]) - mean;
            variance += off * off;
        }
        const float scale = 1.0f / std::sqrt(variance / float(size) + 1e-5f);
        for (int64_t i = 0; i < size; ++i) {
            const int64_t c = g % GROUPS * channels + i / area;
            y[g * size + i] =
                (float(in[i]) - mean) * scale * float(norm_weight[c]) + float(norm_bias[c]);
        }
    }
    return 0;
}
