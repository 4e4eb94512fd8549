#include <cmath>

extern "C" int log_softmax(const scalar_t* x, scalar_t* y, int64_t batch_size, int64_t dim) {
#pragma omp parallel for
    for (int64_t r = 0; r < batch_size; ++r) {
        const scalar_t* row = x + r * dim;
        float top = -INFINITY, total = 0.0f;
        for (int64_t c = 0; c < dim; ++c) top = std::fmax(top, float(row[c]));
        for (int64_t c = 0; c < dim; ++c) total += std::exp(float(row[c]) - top);
        const float logarithm = std::log(total);
        for (int64_t c = 0; c < dim; ++c) y[r * dim + c] = float(row[c]) - top - logarithm;
    }
    return 0;
}
