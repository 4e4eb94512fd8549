#include <cmath>
#include <vector>

extern "C" int conv_norm_mean(const scalar_t* x, const scalar_t* conv_weight,
                              const scalar_t* conv_bias, const scalar_t* norm_weight,
                              const scalar_t* norm_bias, scalar_t* y, int64_t batch_size,
                              int64_t x_1, int64_t depth, int64_t height, int64_t width,
                              int64_t out_channels, int64_t conv_weight_2, int64_t conv_weight_3,
                              int64_t conv_weight_4) {
    constexpr int64_t GROUPS = 8;
    const int64_t od = depth - conv_weight_2 + 1, oh = height - conv_weight_3 + 1;
    const int64_t ow = width - conv_weight_4 + 1, volume = od * oh * ow;
    const int64_t channels = out_channels / GROUPS, window = conv_weight_2 * conv_weight_3;
#pragma omp parallel for
    for (int64_t n = 0; n < batch_size; ++n) {
        std::vector<float> made(channels * volume);
        double all = 0.0;
        for (int64_t g = 0; g < GROUPS; ++g) {
            double mean = 0.0, variance = 0.0;
            for (int64_t at = 0; at < channels * volume; ++at) {
                const int64_t c = g * channels + at / volume, w = at % ow;
                const int64_t h = at / ow % oh, d = at / (ow * oh) % od;
                float total = float(conv_bias[c]);
                for (int64_t i = 0; i < x_1; ++i)
                    for (int64_t k = 0; k < window; ++k)
                        for (int64_t e = 0; e < conv_weight_4; ++e) {
                            const int64_t a = k / conv_weight_3, b = k % conv_weight_3;
                            const int64_t from =
                                (((n * x_1 + i) * depth + d + a) * height + h + b) * width + w + e;
                            const int64_t by = ((c * x_1 + i) * window + k) * conv_weight_4 + e;
                            total += float(x[from]) * float(conv_weight[by]);
                        }
                made[at] = total;
                mean += total;
            }
            mean /= double(channels * volume);
            for (const float value : made) variance += (value - mean) * (value - mean);
            const double scale = 1.0 / std::sqrt(variance / double(channels * volume) + 1e-5);
            for (int64_t at = 0; at < channels * volume; ++at) {
                const int64_t c = g * channels + at / volume;
                all += (made[at] - mean) * scale * float(norm_weight[c]) + float(norm_bias[c]);
            }
        }
        y[n] = float(all / double(out_channels * volume));
    }
    return 0;
}
