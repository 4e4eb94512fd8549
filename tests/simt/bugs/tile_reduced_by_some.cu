// what: a tile's shuffles are called by those of its threads that have an item only
// expect: SX303 | SX306
// widths: 32 64
// pitfall: 13
// sanitizer: none
// group: convergence
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

template <class Tile>
__device__ float tile_max(const Tile& tile, float value) {
    for (int d = tile.size() / 2; d > 0; d /= 2) value = fmaxf(value, tile.shfl_xor(value, d));
    return value;
}

// A tile of 8 threads per row of up to 8 entries.
__global__ void row_max(const float* x, const int* lengths, float* top) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    const int row = blockIdx.x * tile.meta_group_size() + tile.meta_group_rank();
    const int lane = tile.thread_rank();
    float value = -1;
#ifdef BUG
    if (lane < lengths[row]) value = tile_max(tile, x[row * 8 + lane]);
#else
    value = tile_max(tile, lane < lengths[row] ? x[row * 8 + lane] : -1);
#endif
    tile.sync();
    if (lane == 0) top[row] = value;
}

int main() {
    constexpr int rows = 48;
    const auto x = numbers<float>(rows * 8);
    auto lengths = numbers<int>(rows, 8);
    std::vector<float> want(rows);
    for (int r = 0; r < rows; ++r) {
        lengths[r] += 1;
        want[r] = *std::max_element(&x[r * 8], &x[r * 8] + lengths[r]);
    }
    float* top = device_array<float>(rows);
    row_max<<<3, 128>>>(to_device(x), to_device(lengths), top);
    finish();
    return check(to_host(top, rows), want);
}
