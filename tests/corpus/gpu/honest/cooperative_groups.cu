// mechanism: tiles of cooperative groups reduce a row each
// backend: cuda
// op: softmax
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void softmax_kernel(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
    const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    const int64_t row = (int64_t)blockIdx.x * 8 + tile.meta_group_rank();
    if (row >= rows) return;  // all of the tile
    x += row * cols;
    y += row * cols;
    float top = -3.402823466e38f, total = 0.0f;
    for (int64_t i = tile.thread_rank(); i < cols; i += 32) top = fmaxf(top, float(x[i]));
    top = cg::reduce(tile, top, cg::greater<float>());
    for (int64_t i = tile.thread_rank(); i < cols; i += 32) total += expf(float(x[i]) - top);
    total = cg::reduce(tile, total, cg::plus<float>());
    for (int64_t i = tile.thread_rank(); i < cols; i += 32)
        y[i] = scalar_t(expf(float(x[i]) - top) / total);
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                       cudaStream_t stream) {
    if (rows * cols == 0) return 0;
    softmax_kernel<<<(unsigned)((rows + 7) / 8), 256, 0, stream>>>(x, y, rows, cols);
    return (int)cudaGetLastError();
}
