// A thread for each sample: the sum of each channel is scaled by its group, so that nothing needs
// to be kept but sums.
#include <portkern/portable.h>

constexpr int64_t GROUPS = 8;

struct Shape {
    int64_t in, depth, height, width, out, kd, kh, kw;
};

__device__ float at_of(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, Shape s,
                       int64_t c, int64_t d, int64_t h, int64_t w) {
    float total = float(bias[c]);
    for (int64_t i = 0; i < s.in; ++i)
        for (int64_t a = 0; a < s.kd; ++a)
            for (int64_t b = 0; b < s.kh; ++b)
                for (int64_t e = 0; e < s.kw; ++e) {
                    const int64_t from = ((i * s.depth + d + a) * s.height + h + b) * s.width + w + e;
                    const int64_t by = (((c * s.in + i) * s.kd + a) * s.kh + b) * s.kw + e;
                    total += float(x[from]) * float(weight[by]);
                }
    return total;
}

__global__ void samples(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                        const scalar_t* scale, const scalar_t* shift, scalar_t* y, int64_t batch,
                        Shape s) {
    const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= batch) return;
    const scalar_t* in = x + n * s.in * s.depth * s.height * s.width;
    const int64_t od = s.depth - s.kd + 1, oh = s.height - s.kh + 1, ow = s.width - s.kw + 1;
    const int64_t volume = od * oh * ow, channels = s.out / GROUPS;
    double all = 0.0;
    for (int64_t g = 0; g < GROUPS; ++g) {
        double mean = 0.0, variance = 0.0, scaled = 0.0, weights = 0.0;
        for (int pass = 0; pass < 2; ++pass) {
            for (int64_t c = g * channels; c < (g + 1) * channels; ++c)
                for (int64_t v = 0; v < volume; ++v) {
                    const float made =
                        at_of(in, weight, bias, s, c, v / (oh * ow), v / ow % oh, v % ow);
                    if (pass == 0) mean += made;
                    else variance += (made - mean) * (made - mean);
                    if (pass == 1) scaled += (made - mean) * float(scale[c]);
                    if (pass == 1) weights += float(shift[c]);
                }
            if (pass == 0) mean /= double(channels * volume);
        }
        all += scaled / sqrt(variance / double(channels * volume) + 1e-5) + weights;
    }
    y[n] = scalar_t(float(all / double(s.out * volume)));
}

extern "C" int conv_norm_mean(const scalar_t* x, const scalar_t* conv_weight,
                              const scalar_t* conv_bias, const scalar_t* norm_weight,
                              const scalar_t* norm_bias, scalar_t* y, int64_t batch_size,
                              int64_t x_1, int64_t depth, int64_t height, int64_t width,
                              int64_t out_channels, int64_t conv_weight_2, int64_t conv_weight_3,
                              int64_t conv_weight_4, cudaStream_t stream) {
    if (batch_size == 0) return 0;
    const Shape s = {x_1,           depth,         height,        width,
                     out_channels, conv_weight_2, conv_weight_3, conv_weight_4};
    samples<<<unsigned((batch_size + 31) / 32), 32, 0, stream>>>(
        x, conv_weight, conv_bias, norm_weight, norm_bias, y, batch_size, s);
    return int(cudaGetLastError());
}
