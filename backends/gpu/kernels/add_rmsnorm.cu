// x + residual, and its root-mean-square normalisation over the last axis. A row of the sum is kept in registers,
// of a few lanes or of a block; of a longer one what a thread wrote is read again, by the thread itself.
#define BLOCK 512  // knob: 256 512 1024
#define ITEMS 32  // knob: 16 32
#include <portkern/held_rows.h>

struct Tensors {
    const scalar_t *x, *residual, *weight;
    scalar_t *y, *total;
    int64_t rows, cols;
    float eps;
};

template <class S>
__global__ __launch_bounds__(BLOCK) void add_rmsnorm_rows(const Tensors all, int lanes) {
    using Pack = typename S::Pack;
    __shared__ float partial[WARPS_MOST];
    const S by(all.cols, lanes);
    const int64_t row = by.row(), start = min(row, all.rows - 1) * all.cols;
    const bool there = row < all.rows;
    const auto* x = reinterpret_cast<const Pack*>(all.x + start);
    const auto* residual = reinterpret_cast<const Pack*>(all.residual + start);
    const auto* weight = reinterpret_cast<const Pack*>(all.weight);
    auto* total = reinterpret_cast<Pack*>(all.total + start);
    auto* y = reinterpret_cast<Pack*>(all.y + start);
    Pack held[S::KEPT];
    float squares = 0.0f;
    by.each([&](int i, int k) {
        const Pack a = x[i], b = residual[i];
#pragma unroll
        for (int j = 0; j < S::VEC; ++j) {
            held[k].at[j] = scalar_t(float(a.at[j]) + float(b.at[j]));
            squares += float(held[k].at[j]) * float(held[k].at[j]);
        }
        if (there) total[i] = held[k];
    });
    const float scale = rsqrtf(by.sum(squares, partial) / all.cols + all.eps);
    if (!there) return;
    by.each([&](int i, int k) {
        const Pack own = S::LOOPS ? total[i] : held[k], gain = weight[i];
        Pack result;
#pragma unroll
        for (int j = 0; j < S::VEC; ++j) result.at[j] = scalar_t(float(own.at[j]) * scale * float(gain.at[j]));
        y[i] = result;
    });
}

extern "C" int add_rmsnorm(const scalar_t* x, const scalar_t* residual, const scalar_t* weight, scalar_t* y,
                           scalar_t* total, int64_t rows, int64_t cols, float eps, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const Tensors all = {x, residual, weight, y, total, rows, cols, eps};
    const bool whole = are_whole((uintptr_t)x | (uintptr_t)residual | (uintptr_t)weight | (uintptr_t)y |
                                     (uintptr_t)total, cols);
    return with_sharers_of<BLOCK, ITEMS>(whole, cols, [&](const auto& by) {
        using S = typename std::decay_t<decltype(by)>::By;
        add_rmsnorm_rows<S><<<by.blocks(rows), by.threads, 0, stream>>>(all, by.lanes);
        return (int)cudaGetLastError();
    });
}
