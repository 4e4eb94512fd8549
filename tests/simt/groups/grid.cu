// A grid that meets at a barrier, and what it knows of itself.
#include <cooperative_groups.h>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void ring(int* cells, int* sums, int rounds) {
    cg::grid_group grid = cg::this_grid();
    const int n = grid.size(), i = grid.thread_rank();
    cells[i] = i;
    grid.sync();
    for (int r = 0; r < rounds; ++r) {
        const int next = cells[(i + 1) % n];
        cg::sync(grid);
        cells[i] = next;
        grid.sync();
    }
    sums[i] = cells[i] + (grid.is_valid() ? 0 : 1000) + (grid.num_blocks() == 6 ? 0 : 1000) +
              (grid.block_rank() == blockIdx.y * gridDim.x + blockIdx.x ? 0 : 1000);
}

int main() {
    int *cells, *sums, rounds = 5;
    cudaMallocManaged(&cells, 6 * 64 * sizeof(int));
    cudaMallocManaged(&sums, 6 * 64 * sizeof(int));
    void* arguments[] = {&cells, &sums, &rounds};
    cudaLaunchCooperativeKernel((void*)ring, dim3(3, 2), dim3(64), arguments, 0, 0);
    cudaDeviceSynchronize();
    for (int i = 0; i < 6 * 64; ++i) CHECK(sums[i] == (i + 5) % (6 * 64));
    return finish();
}
