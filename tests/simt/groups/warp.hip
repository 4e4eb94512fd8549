// HIP's forms: without a mask, in branches too, and with masks of 64 bits.
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

struct Results {
    int index, up, down, exclusive, narrow, lane, any, all, all_of_mask, sum, tile, coalesced;
    unsigned long long ballot, active, masked, match;
    float tile_sum;
};

__global__ void everything(Results* results, unsigned long long mask) {
    const int t = threadIdx.x;
    Results r = {};
    r.index = __shfl(t, 3);
    r.up = __shfl_up(t, 2);
    r.down = __shfl_down(t, 2);
    r.exclusive = __shfl_xor(t, warpSize / 2);
    r.narrow = __shfl_down(t, 1, 8);
    r.lane = __lane_id();
    r.any = __any(t == 1);
    r.all = __all(t < 500);
    r.ballot = __ballot(t % 2);
    if (t % 4 == 1) r.active = __activemask();  // converged in a branch
    else r.active = __ballot(1);
    r.masked = __ballot_sync(mask, t % 3 == 0);
    r.all_of_mask = __all_sync(mask, 1);
    r.match = __match_any_sync(mask, t % 2);
    r.sum = __reduce_add_sync(mask, t);
    __syncwarp();
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    float sum = 1.0f;
    for (int by = tile.size() / 2; by > 0; by /= 2) sum += tile.shfl_xor(sum, by);
    r.tile_sum = sum;
    r.tile = tile.thread_rank() + 100 * (tile.ballot(t % 2) == 0xaaaa);
    if (t % 4 == 1) {
        auto here = cg::coalesced_threads();
        r.coalesced = here.size() * 1000 + here.shfl(t, 1) % warpSize;
    }
    results[t] = r;
}

__global__ void with_atomics(int* cells, float* real) {
    __hip_atomic_fetch_add(&cells[0], 2, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    unsafeAtomicAdd(real, 0.5f);
    atomicMax(real + 1, (float)threadIdx.x);
    if (threadIdx.x == 64) {
        cells[1] = 42;
        __hip_atomic_store(&cells[2], 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    if (threadIdx.x == 0) {
        while (__hip_atomic_load(&cells[2], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) == 0) {
        }
        cells[3] = cells[1];
        int expected = 7;
        cells[4] = __hip_atomic_compare_exchange_strong(&cells[5], &expected, 9, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED,
                                                        __HIP_MEMORY_SCOPE_AGENT);
        cells[6] = expected;
    }
}

int main() {
    hipDeviceProp_t properties;
    (void)hipGetDeviceProperties(&properties, 0);
    const int warp = properties.warpSize, threads = 128;
    const unsigned long long all = warp == 64 ? ~0ull : 0xffffffffull;
    Results* results;
    (void)hipMallocManaged(&results, threads * sizeof(Results));
    everything<<<1, threads>>>(results, ~0ull);
    (void)hipDeviceSynchronize();
    for (int t = 0; t < threads; ++t) {
        const Results& r = results[t];
        const int lane = t % warp, base = t - lane;
        check_case = t;
        CHECK(r.index == base + 3 && r.up == (lane < 2 ? t : t - 2));
        CHECK(r.down == (lane + 2 < warp ? t + 2 : t) && r.exclusive == (t ^ warp / 2));
        CHECK(r.narrow == (t % 8 == 7 ? t : t + 1) && r.lane == lane);
        CHECK(r.any == (base == 0) && r.all == 1 && r.all_of_mask == 1);
        CHECK(r.ballot == (0xaaaaaaaaaaaaaaaaull & all));
        CHECK(r.active == ((t % 4 == 1 ? 0x2222222222222222ull : 0xddddddddddddddddull) & all));
        unsigned long long masked = 0;
        int sum = 0;
        for (int l = 0; l < warp; ++l) {
            masked |= (unsigned long long)((base + l) % 3 == 0) << l;
            sum += base + l;
        }
        CHECK(r.masked == masked && r.sum == sum);
        CHECK(r.match == ((t % 2 ? 0xaaaaaaaaaaaaaaaaull : 0x5555555555555555ull) & all));
        CHECK(r.tile_sum == 16.0f && r.tile == t % 16 + 100);
        CHECK(r.coalesced == (t % 4 == 1 ? warp / 4 * 1000 + 5 : 0));
    }
    int* cells;
    float* real;
    (void)hipMallocManaged(&cells, 8 * sizeof(int));
    (void)hipMallocManaged(&real, 2 * sizeof(float));
    (void)hipMemset(cells, 0, 8 * sizeof(int));
    (void)hipMemset(real, 0, 2 * sizeof(float));
    with_atomics<<<1, threads>>>(cells, real);
    (void)hipDeviceSynchronize();
    CHECK(cells[0] == 2 * threads && real[0] == threads * 0.5f && real[1] == threads - 1);
    CHECK(cells[3] == 42 && cells[4] == 0 && cells[5] == 0 && cells[6] == 0);
    return finish();
}
