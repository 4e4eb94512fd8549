#include <portkern/portable.h>

__global__ void product(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                        scalar_t* y, int64_t rows, int64_t in, int64_t out) {
    const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= rows * out) return;
    const int64_t r = at / out, o = at % out;
    float total = 0.0f;
    for (int64_t i = 0; i < in; ++i) total += float(x[r * in + i]) * float(weight[o * in + i]);
    total += float(bias[o]);
    const float swish = total / (1.0f + expf(-total)) / 2.0f;
    y[at] = scalar_t(tanhf(fminf(fmaxf(swish, -1.0f), 1.0f)));
}

extern "C" int gemm_swish(const scalar_t* x, const scalar_t* gemm_weight,
                          const scalar_t* gemm_bias, scalar_t* y, int64_t rows,
                          int64_t in_features, int64_t out_features, cudaStream_t stream) {
    const int64_t all = rows * out_features;
    if (all == 0) return 0;
    product<<<unsigned((all + 127) / 128), 128, 0, stream>>>(x, gemm_weight, gemm_bias, y, rows,
                                                             in_features, out_features);
    return int(cudaGetLastError());
}
