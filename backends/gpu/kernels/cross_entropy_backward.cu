// (softmax(logits) - one at the target's class) * grad of each row. A row that fits is read once and kept in
// registers; of a longer one the largest and the sum are found together, and it is read again.
#define BLOCK 512  // knob: 256 512 1024
#define ITEMS 32  // knob: 16 32
#include <portkern/held_rows.h>

struct Tensors {
    const scalar_t *grad, *logits;
    const int64_t* target;
    scalar_t* to;
    int64_t rows, cols;
};

__device__ __forceinline__ float power(float value, float most) { return exponential(value - most); }

template <class S>
__global__ __launch_bounds__(BLOCK) void cross_entropy_rows(const Tensors all, int lanes) {
    using Pack = typename S::Pack;
    __shared__ float partial[2][WARPS_MOST];
    const S by(all.cols, lanes);
    const int64_t row = by.row(), own = min(row, all.rows - 1), start = own * all.cols;
    const auto* logits = reinterpret_cast<const Pack*>(all.logits + start);
    auto* to = reinterpret_cast<Pack*>(all.to + start);
    Pack held[S::KEPT];
    float most = Max::start(), total = 0.0f;
    by.each([&](int i, int k) {
        held[k] = logits[i];
        const float before = most;
#pragma unroll
        for (int j = 0; j < S::VEC; ++j) most = fmaxf(most, float(held[k].at[j]));
        if constexpr (!S::LOOPS) return;
        total *= power(before, most);
#pragma unroll
        for (int j = 0; j < S::VEC; ++j) total += power(float(held[k].at[j]), most);
    });
    const float largest = by.largest(most, partial[0]);
    if constexpr (S::LOOPS) total *= power(most, largest);
    else by.each([&](int, int k) {
#pragma unroll
        for (int j = 0; j < S::VEC; ++j) total += power(float(held[k].at[j]), largest);
    });
    total = by.sum(total, partial[1]);
    if (row >= all.rows) return;
    const float factor = float(all.grad[own]), share = factor / total;
    const int64_t target = all.target[own];
    by.each([&](int i, int k) {
        const Pack values = S::LOOPS ? logits[i] : held[k];
        Pack result;
#pragma unroll
        for (int j = 0; j < S::VEC; ++j) {
            const bool hit = (int64_t)i * S::VEC + j == target;
            const float part = power(float(values.at[j]), largest);
            result.at[j] = scalar_t(hit ? (part - total) * share : part * share);
        }
        to[i] = result;
    });
}

extern "C" int cross_entropy_backward(const scalar_t* grad, const scalar_t* logits, const int64_t* target,
                                      scalar_t* to, int64_t rows, int64_t cols, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const Tensors all = {grad, logits, target, to, rows, cols};
    const bool whole = are_whole((uintptr_t)logits | (uintptr_t)to, cols);
    return with_sharers_of<BLOCK, ITEMS>(whole, cols, [&](const auto& by) {
        using S = typename std::decay_t<decltype(by)>::By;
        cross_entropy_rows<S><<<by.blocks(rows), by.threads, 0, stream>>>(all, by.lanes);
        return (int)cudaGetLastError();
    });
}
