// Cooperative groups: tiles, coalesced groups, partitions and their collectives.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "check.h"

namespace cg = cooperative_groups;

struct Three {
    float a, b, c;
};

struct Results {
    int block_rank, block_size, group_x;
    int tile_rank, tile_meta, tile_metas, inner_rank, inner_meta, inner_metas;
    int shfl, up, down, exclusive, any, all, match, match_all, flag;
    unsigned ballot;
    float of_struct;
    int sum, least, most, bits, custom;
    float real_sum;
    int inclusive, exclusive_scan, exclusive_max;
    int coalesced_rank, coalesced_size, coalesced_sum, coalesced_shfl, coalesced_up, coalesced_down;
    unsigned coalesced_ballot;
    int coalesced_scan;
    int labeled_rank, labeled_size, labeled_meta, labeled_metas, binary_rank, binary_size;
    int dynamic_rank, dynamic_size, last_size, once, copied, one_thread;
};

// A function that knows nothing of its group, as in the guide's first example.
__device__ int sum_by_memory(cg::thread_group g, int* scratch, int value) {
    const int lane = g.thread_rank();
    for (int i = g.size() / 2; i > 0; i /= 2) {
        scratch[lane] = value;
        g.sync();
        if (lane < i) value += scratch[lane + i];
        g.sync();
    }
    return value;
}

template <class Parent>
__device__ int tile_sum(cg::thread_block_tile<16, Parent> tile, int value) {
    for (int by = tile.size() / 2; by > 0; by /= 2) value += tile.shfl_down(value, by);
    return tile.shfl(value, 0);
}

__device__ int meta_of(const cg::thread_block_tile<16>& tile) {
    return tile.meta_group_rank() * 100 + tile.meta_group_size();
}

__device__ void of_tiles(Results& r, const cg::thread_block_tile<32, cg::thread_block>& tile) {
    const int t = threadIdx.x;
    r.tile_rank = tile.thread_rank();
    r.tile_meta = tile.meta_group_rank();
    r.tile_metas = tile.meta_group_size();
    auto inner = cg::tiled_partition<16>(tile);
    r.inner_rank = inner.thread_rank();
    r.inner_meta = meta_of(inner);
    r.inner_metas = inner.meta_group_size();
    r.shfl = tile.shfl(t, 35);
    r.up = tile.shfl_up(t, 3);
    r.down = tile.shfl_down(t, 3);
    r.exclusive = inner.shfl_xor(t, 5);
    r.any = tile.any(t == 40);
    r.all = tile.all(t >= 32);
    r.ballot = tile.ballot(t % 2);
    r.match = inner.match_any(t % 3);
    r.match_all = inner.match_all(t / 16, r.flag);
    r.of_struct = tile.shfl(Three{t + 0.5f, 1.0f, t * 2.0f}, 7).c;
    r.sum = cg::reduce(tile, t, cg::plus<int>());
    r.least = cg::reduce(tile, t, cg::less<int>());
    r.most = cg::reduce(inner, t, cg::greater<int>());
    r.bits = cg::reduce(tile, 1u << t % 32, cg::bit_or<unsigned>());
    r.custom = cg::reduce(tile, t, [](int a, int b) { return a > b ? a : b; });
    r.real_sum = cg::reduce(tile, 0.5f, cg::plus<float>());
    r.inclusive = cg::inclusive_scan(tile, t);
    r.exclusive_scan = cg::exclusive_scan(tile, t);
    r.exclusive_max = cg::exclusive_scan(tile, t, cg::greater<int>());
    r.custom += tile_sum(inner, 1) == 16 ? 0 : 1000000;
}

__device__ void of_coalesced(Results& r) {
    const int t = threadIdx.x;
    if (t % 3 != 1) return;
    cg::coalesced_group g = cg::coalesced_threads();
    r.coalesced_rank = g.thread_rank();
    r.coalesced_size = g.size();
    r.coalesced_sum = cg::reduce(g, t, cg::plus<int>());
    r.coalesced_shfl = g.shfl(t, 2);
    r.coalesced_up = g.shfl_up(t, 1);
    r.coalesced_down = g.shfl_down(t, 1);
    r.coalesced_ballot = g.ballot(t % 2);
    r.coalesced_scan = cg::exclusive_scan(g, 1, cg::plus<int>());
    cg::coalesced_group four = cg::tiled_partition(g, 4);
    r.last_size = four.size();
}

__global__ void everything(Results* results, int* counter, const int* from) {
    __shared__ int scratch[128], copy[100];
    cg::thread_block block = cg::this_thread_block();
    const int t = threadIdx.x;
    Results r = {};
    r.block_rank = block.thread_rank();
    r.block_size = block.num_threads();
    r.group_x = block.group_index().x;
    auto tile = cg::tiled_partition<32>(block);
    of_tiles(r, tile);
    of_coalesced(r);
    auto labeled = cg::labeled_partition(tile, t % 5);
    r.labeled_rank = labeled.thread_rank();
    r.labeled_size = labeled.size();
    r.labeled_meta = labeled.meta_group_rank();
    r.labeled_metas = labeled.meta_group_size();
    auto binary = cg::binary_partition(tile, t % 4 == 0);
    r.binary_rank = binary.thread_rank();
    r.binary_size = binary.size();
    cg::thread_group dynamic = cg::tiled_partition(block, 8);
    r.dynamic_rank = dynamic.thread_rank();
    r.dynamic_size = sum_by_memory(dynamic, scratch + t / 8 * 8, 1);
    block.sync();
    r.dynamic_size += sum_by_memory(block, scratch, 1) * 100;
    cg::invoke_one(tile, [&] { atomicAdd(counter, 1); });
    block.sync();
    r.once = cg::invoke_one_broadcast(tile, [&] { return atomicAdd(counter, 0); });
    cg::memcpy_async(block, copy, from, sizeof copy);
    cg::wait(block);
    r.copied = copy[t % 100];
    r.one_thread = cg::this_thread().size() + cg::tiled_partition<1>(block).ballot(1);
    auto token = block.barrier_arrive();
    block.barrier_wait(std::move(token));
    results[t] = r;
}

static void check_coalesced(const Results& r, int t, int warp) {
    if (t % 3 != 1) return;
    const int base = t / warp * warp;
    int members[64], n = 0, rank = 0, sum = 0;
    unsigned ballot = 0;
    for (int m = base; m < base + warp; ++m) {
        if (m % 3 != 1) continue;
        if (m == t) rank = n;
        if (n < 32) ballot |= (unsigned)(m % 2) << n;
        sum += m;
        members[n++] = m;
    }
    CHECK(r.coalesced_rank == rank && r.coalesced_size == n && r.coalesced_sum == sum);
    CHECK(r.coalesced_shfl == members[2] && r.coalesced_ballot == ballot);
    CHECK(r.coalesced_up == members[rank ? rank - 1 : 0]);
    CHECK(r.coalesced_down == members[rank + 1 < n ? rank + 1 : rank]);
    CHECK(r.coalesced_scan == rank && r.last_size == (rank / 4 * 4 + 4 <= n ? 4 : n % 4));
}

static void check_tiles(const Results& r, int t) {
    const int lane = t % 32, base = t - lane, inner = t / 16 * 16;
    CHECK(r.tile_rank == lane && r.tile_meta == t / 32 && r.tile_metas == 4);
    CHECK(r.inner_rank == t % 16 && r.inner_meta == lane / 16 * 100 + 2 && r.inner_metas == 2);
    CHECK(r.shfl == base + 3 && r.up == (lane < 3 ? t : t - 3));
    CHECK(r.down == (lane > 28 ? t : t + 3) && r.exclusive == (t ^ 5));
    CHECK(r.any == (base == 32) && r.all == (base >= 32) && r.ballot == 0xaaaaaaaau);
    int match = 0, inclusive = 0;
    for (int l = 0; l < 16; ++l) match |= ((inner + l) % 3 == t % 3) << l;
    for (int m = base; m <= t; ++m) inclusive += m;
    CHECK(r.match == match && r.match_all == 0xffff && r.flag == 1);
    CHECK(r.of_struct == (base + 7) * 2.0f);
    CHECK(r.sum == 32 * base + 31 * 16 && r.least == base && r.most == inner + 15);
    CHECK(r.bits == -1 && r.custom == base + 31 && r.real_sum == 16.0f);
    CHECK(r.inclusive == inclusive && r.exclusive_scan == inclusive - t);
    CHECK(r.exclusive_max == (lane ? t - 1 : 0));
}

static void check_partitions(const Results& r, int t) {
    const int base = t / 32 * 32;
    int size = 0, rank = 0;
    for (int m = base; m < base + 32; ++m) {
        size += m % 5 == t % 5;
        rank += m % 5 == t % 5 && m < t;
    }
    CHECK(r.labeled_size == size && r.labeled_rank == rank);
    CHECK(r.labeled_metas == 5 && r.labeled_meta == (t + 5 - base % 5) % 5);
    CHECK(r.binary_size == (t % 4 ? 24 : 8));
    CHECK(r.binary_rank == (t % 4 ? t % 32 / 4 * 3 + t % 4 - 1 : t % 32 / 4));
    CHECK(r.dynamic_rank == t % 8);
    CHECK(t % 8 || r.dynamic_size % 100 == 8);
    CHECK(t || r.dynamic_size == 12808);
    CHECK(r.once == 4 && r.copied == t % 100 + 7 && r.one_thread == 2);
    CHECK(r.block_rank == t && r.block_size == 128 && r.group_x == 0);
}

int main() {
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    Results* results;
    int *counter, *from, numbers[100];
    cudaMallocManaged(&results, 128 * sizeof(Results));
    cudaMallocManaged(&counter, sizeof(int));
    cudaMallocManaged(&from, 100 * sizeof(int));
    for (int i = 0; i < 100; ++i) numbers[i] = i + 7;
    cudaMemcpy(from, numbers, sizeof numbers, cudaMemcpyHostToDevice);
    cudaMemset(counter, 0, sizeof(int));
    everything<<<1, 128>>>(results, counter, from);
    cudaDeviceSynchronize();
    for (int t = 0; t < 128; ++t) {
        check_case = t;
        check_tiles(results[t], t);
        check_coalesced(results[t], t, properties.warpSize);
        check_partitions(results[t], t);
    }
    return finish();
}
