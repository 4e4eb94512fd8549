#include <portkern/portable.h>

__global__ void rows_of(const scalar_t* x, scalar_t* y, int64_t batch_size, int64_t dim) {
    const int64_t r = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (r >= batch_size) return;
    const scalar_t* row = x + r * dim;
    float top = -INFINITY, total = 0.0f;
    for (int64_t c = 0; c < dim; ++c) top = fmaxf(top, float(row[c]));
    for (int64_t c = 0; c < dim; ++c) total += expf(float(row[c]) - top);
    const float logarithm = logf(total);
    for (int64_t c = 0; c < dim; ++c) y[r * dim + c] = scalar_t(float(row[c]) - top - logarithm);
}

extern "C" int log_softmax(const scalar_t* x, scalar_t* y, int64_t batch_size, int64_t dim,
                           cudaStream_t stream) {
    if (batch_size * dim == 0) return 0;
    rows_of<<<unsigned((batch_size + 63) / 64), 64, 0, stream>>>(x, y, batch_size, dim);
    return int(cudaGetLastError());
}
