#include <portkern/portable.h>

__global__ void loss(const scalar_t* predictions, const scalar_t* targets, scalar_t* y,
                     int64_t batch_size, int64_t features) {
    __shared__ double partial[64];
    double total = 0.0;
    for (int64_t r = threadIdx.x; r < batch_size; r += 64) {
        float product = 0.0f, a = 0.0f, b = 0.0f;
        for (int64_t c = 0; c < features; ++c) {
            const float p = float(predictions[r * features + c]);
            const float t = float(targets[r * features + c]);
            product += p * t;
            a += p * p;
            b += t * t;
        }
        total += 1.0f - product / (fmaxf(sqrtf(a), 1e-8f) * fmaxf(sqrtf(b), 1e-8f));
    }
    partial[threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 1; i < 64; ++i) total += partial[i];
    y[0] = scalar_t(float(total / double(batch_size)));
}

extern "C" int cosine_loss(const scalar_t* predictions, const scalar_t* targets, scalar_t* y,
                           int64_t batch_size, int64_t features, cudaStream_t stream) {
    loss<<<1, 64, 0, stream>>>(predictions, targets, y, batch_size, features);
    return int(cudaGetLastError());
}
