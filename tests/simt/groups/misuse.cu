// One mistake per kernel, chosen by the first argument; what each must be reported as stands in the
// test that runs it.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/cub.cuh>

#include <cstdio>
#include <cstring>

#define ALL 0xffffffffu
namespace cg = cooperative_groups;

__global__ void shuffle_beyond_the_block(int* out) {  // the last warp has 16 lanes
    out[threadIdx.x] = __shfl_down_sync(ALL, (int)threadIdx.x, 16);
}

__global__ void shuffle_from_outside_the_mask(int* out) {
    if (threadIdx.x < 8) out[threadIdx.x] = __shfl_sync(0xffu, (int)threadIdx.x, 9);
}

__global__ void odd_width(int* out) { out[threadIdx.x] = __shfl_xor_sync(ALL, 1, 1, 12); }

__global__ void not_in_its_mask(int* out) {
    out[threadIdx.x] = __ballot_sync(threadIdx.x < 32 ? 0xfffffffeu : ALL, 1);
}

__global__ void thirty_two_lanes(int* out) { out[threadIdx.x] = __ballot_sync(ALL, 1); }

__global__ void reduce_part_of_a_tile(int* out) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    out[threadIdx.x] = cg::reduce(tile, 1, cg::plus<int>());
}

__global__ void tile_of_two_warps(int* out) {
    out[threadIdx.x] = cg::tiled_partition<64>(cg::this_thread_block()).shfl_up(1, 1);
}

__global__ void uneven_partition(int* out) {
    out[threadIdx.x] = cg::tiled_partition(cg::this_thread_block(), 12).size();
}

__global__ void rank_beyond_the_group(int* out) {
    if (threadIdx.x % 2) out[threadIdx.x] = cg::coalesced_threads().shfl(1, 40);
}

__global__ void trap(int* out) {
    if (threadIdx.x == 3) __trap();
    out[threadIdx.x] = 1;
}

__global__ void reduce_again_without_barrier(int* out) {
    using Reduce = cub::BlockReduce<int, 48>;
    __shared__ Reduce::TempStorage storage;
    const int sum = Reduce(storage).Sum(threadIdx.x);
    const int most = Reduce(storage).Reduce(threadIdx.x, cub::Max());
    if (threadIdx.x == 0) *out = sum + most;
}

__global__ void scan_again_without_barrier(int* out) {
    using Scan = cub::BlockScan<int, 48>;
    __shared__ Scan::TempStorage storage;
    int before, after;
    Scan(storage).ExclusiveSum(1, before);
    Scan(storage).InclusiveSum(before, after);
    out[threadIdx.x] = after;
}

__global__ void exchange_again_without_barrier(int* out) {
    using Exchange = cub::BlockExchange<int, 48, 2>;
    __shared__ Exchange::TempStorage storage;
    int items[2] = {(int)threadIdx.x, 1};
    Exchange(storage).BlockedToStriped(items, items);
    Exchange(storage).BlockedToStriped(items, items);
    out[threadIdx.x] = items[0];
}

__global__ void result_beside_thread_0(int* out) {  // only thread 0 has the sum
    using Reduce = cub::BlockReduce<int, 48>;
    __shared__ Reduce::TempStorage storage;
    out[threadIdx.x] = Reduce(storage).Sum(1);
}

__global__ void block_scope_between_blocks(int* out) { atomicAdd_block(out, 1); }

__global__ void histogram_read_too_early(int* out) {
    using Histogram = cub::BlockHistogram<unsigned char, 48, 1, 48>;
    __shared__ Histogram::TempStorage storage;
    __shared__ unsigned counts[48];
    unsigned char item[1] = {(unsigned char)(threadIdx.x % 7)};
    Histogram(storage).Histogram(item, counts);
    out[threadIdx.x] = counts[47 - threadIdx.x];
}

static int blocks(const char* kernel) { return strstr(kernel, "between_blocks") ? 2 : 1; }

#define RUN(kernel)                          \
    if (!strcmp(argv[1], #kernel)) {         \
        kernel<<<blocks(#kernel), 48>>>(out);              \
        cudaDeviceSynchronize();             \
    }

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    int* out;
    cudaMallocManaged(&out, 48 * sizeof(int));
    cudaMemset(out, 0, 48 * sizeof(int));
    RUN(shuffle_beyond_the_block)
    RUN(shuffle_from_outside_the_mask)
    RUN(odd_width)
    RUN(not_in_its_mask)
    RUN(thirty_two_lanes)
    RUN(reduce_part_of_a_tile)
    RUN(tile_of_two_warps)
    RUN(uneven_partition)
    RUN(rank_beyond_the_group)
    RUN(trap)
    RUN(reduce_again_without_barrier)
    RUN(scan_again_without_barrier)
    RUN(exchange_again_without_barrier)
    RUN(result_beside_thread_0)
    RUN(block_scope_between_blocks)
    RUN(histogram_read_too_early)
    for (int i = 0; i < 48; ++i) printf("%d ", out[i]);
}
