// Tiles of several warps: they meet, and tell each other values, without the block's other threads.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

template <class T>
static std::vector<T> to_host(const T* p, size_t n) {
    std::vector<T> host(n);
    cudaMemcpy(host.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost);
    return host;
}
template <class T>
static T* to_device(const std::vector<T>& host) {
    T* p;
    cudaMalloc(&p, host.size() * sizeof(T));
    cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
    return p;
}

struct Results {
    int sum, most, before, through, from_last, any, all, rank, tiles;
    double product;
};

template <unsigned Size>
__device__ void of_tile(Results& r, const cg::thread_block& block) {
    auto tile = cg::tiled_partition<Size>(block);
    const int t = (int)block.thread_rank();
    r.sum = cg::reduce(tile, t, cg::plus<int>());
    r.most = cg::reduce(tile, t * 37 % 101, cg::greater<int>());
    r.product = cg::reduce(tile, t % Size == 3 ? 2.5 : 1.0, [](double a, double b) { return a * b; });
    r.before = cg::exclusive_scan(tile, t);
    r.through = cg::inclusive_scan(tile, t);
    r.from_last = tile.shfl(t, Size - 1);
    r.any = tile.any(t == 200);
    r.all = tile.all(t != 200);
    r.rank = (int)tile.meta_group_rank();
    r.tiles = (int)tile.meta_group_size();
}
template <unsigned Size>
__global__ void tiles(Results* out) {
    __shared__ cg::block_tile_memory<512> memory;
    of_tile<Size>(out[threadIdx.x], cg::this_thread_block(memory));
}
// One tile stages and meets several times while the other has ended.
__global__ void apart(int* out) {
    __shared__ int staged[256];
    auto tile = cg::tiled_partition<128>(cg::this_thread_block());
    if (tile.meta_group_rank() == 1) return;
    for (int round = 0; round < 3; ++round) {
        staged[threadIdx.x] = (int)threadIdx.x + round;
        tile.sync();
        out[threadIdx.x] = staged[127 - threadIdx.x];
        tile.sync();
    }
}

template <unsigned Size>
static void check_tiles(unsigned threads) {
    Results* out = to_device(std::vector<Results>(threads));
    tiles<Size><<<1, threads>>>(out);
    const std::vector<Results> got = to_host(out, threads);
    for (unsigned t = 0; t < threads; ++t) {
        const unsigned begin = t / Size * Size;
        const unsigned end = begin + Size < threads ? begin + Size : threads;
        int sum = 0, most = 0, before = 0;
        for (unsigned i = begin; i < end; ++i) {
            sum += (int)i;
            most = most > (int)(i * 37 % 101) ? most : (int)(i * 37 % 101);
            before += i < t ? (int)i : 0;
        }
        const Results& r = got[t];
        CHECK(r.sum == sum && r.most == most && r.product == 2.5);
        CHECK(r.before == before && r.through == before + (int)t);
        CHECK(end - begin < Size || r.from_last == (int)end - 1);
        CHECK(r.any == (begin <= 200 && 200 < end) && r.all == !r.any);
        CHECK(r.rank == (int)(t / Size) && r.tiles == (int)((threads + Size - 1) / Size));
    }
}

int main() {
    check_tiles<64>(256);
    check_tiles<128>(512);
    check_tiles<256>(512);
    check_tiles<512>(512);
    int* out = to_device(std::vector<int>(256));
    apart<<<1, 256>>>(out);
    const std::vector<int> got = to_host(out, 256);
    for (int t = 0; t < 128; ++t) CHECK(got[t] == 127 - t + 2);
    return finish();
}
