#include <algorithm>
#include <cmath>

extern "C" int cosine_loss(const scalar_t* predictions, const scalar_t* targets, scalar_t* y,
                           int64_t batch_size, int64_t features) {
    double total = 0.0;
#pragma omp parallel for reduction(+ : total)
    for (int64_t r = 0; r < batch_size; ++r) {
        float product = 0.0f, a = 0.0f, b = 0.0f;
        for (int64_t c = 0; c < features; ++c) {
            const float p = predictions[r * features + c], t = targets[r * features + c];
            product += p * t;
            a += p * p;
            b += t * t;
        }
        const float norms = std::max(std::sqrt(a), 1e-8f) * std::max(std::sqrt(b), 1e-8f);
        total += 1.0f - product / norms;
    }
    y[0] = float(total / double(batch_size));
    return 0;
}
