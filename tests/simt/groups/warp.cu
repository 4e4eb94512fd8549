// Shuffles, votes, matches and reductions against their definitions, for the warp's width.
#include <cuda_fp16.h>
#include <vector>

#include "check.h"

#define ALL 0xffffffffu

struct Results {
    int index, up, down, exclusive, narrow_up, narrow_down, narrow_xor, narrow_index;
    float real;
    double wide;
    long long huge;
    float half_sum;
    unsigned ballot, any, all, uniform, match, match_all, active;
    int match_flag, sum, least;
    unsigned greatest, bits_and, bits_or, bits_xor;
    char type_of_short;
};

__global__ void everything(Results* results, int by, int width) {
    const int t = threadIdx.x;
    Results r;
    r.index = __shfl_sync(ALL, t * 3, by);
    r.up = __shfl_up_sync(ALL, t * 3, by);
    r.down = __shfl_down_sync(ALL, t * 3, by);
    r.exclusive = __shfl_xor_sync(ALL, t * 3, by);
    r.narrow_index = __shfl_sync(ALL, t * 3, by, width);
    r.narrow_up = __shfl_up_sync(ALL, t * 3, by, width);
    r.narrow_down = __shfl_down_sync(ALL, t * 3, by, width);
    r.narrow_xor = __shfl_xor_sync(ALL, t * 3, by, width);
    r.real = __shfl_xor_sync(ALL, t * 0.5f, 1);
    r.wide = __shfl_xor_sync(ALL, t * 0.25, 1);
    r.huge = __shfl_xor_sync(ALL, t * 10000000000ll, 1);
    __half h = __float2half((float)(t % 16));
    for (int i = 16; i > 0; i /= 2) h = __hadd(h, __shfl_xor_sync(ALL, h, i));
    r.half_sum = __half2float(h);
    r.ballot = __ballot_sync(ALL, t % 3 == 0);
    r.any = __any_sync(ALL, t == 5) != 0;
    r.all = __all_sync(ALL, t < 1000) != 0;
    r.uniform = __uni_sync(ALL, t >= 0) != 0;
    r.match = __match_any_sync(ALL, t % 4);
    r.match_all = __match_all_sync(ALL, t / 1024, &r.match_flag);
    r.active = __activemask();
    r.sum = __reduce_add_sync(ALL, t - 10);
    r.least = __reduce_min_sync(ALL, t - 10);
    r.greatest = __reduce_max_sync(ALL, (unsigned)t);
    r.bits_and = __reduce_and_sync(ALL, (unsigned)t | 256u);
    r.bits_or = __reduce_or_sync(ALL, 1u << t % 32);
    r.bits_xor = __reduce_xor_sync(ALL, (unsigned)t);
    r.type_of_short = sizeof(__shfl_sync(ALL, (short)t, 0));
    results[t] = r;
}

static int up(int lane, int by, int width) { return lane % width < by ? lane : lane - by; }
static int down(int lane, int by, int width) {
    return lane % width + by >= width ? lane : lane + by;
}
static int exclusive(int lane, int by, int width) {
    return (lane ^ by) > (lane | (width - 1)) ? lane : lane ^ by;
}

static void check_one(const Results& r, int t, int by, int width, int warp) {
    const int lane = t % warp, base = t - lane;
    CHECK(r.index == (base + by % warp) * 3);
    CHECK(r.up == (base + up(lane, by, warp)) * 3);
    CHECK(r.down == (base + down(lane, by, warp)) * 3);
    CHECK(r.exclusive == (base + exclusive(lane, by, warp)) * 3);
    CHECK(r.narrow_index == (base + lane / width * width + by % width) * 3);
    CHECK(r.narrow_up == (base + up(lane, by, width)) * 3);
    CHECK(r.narrow_down == (base + down(lane, by, width)) * 3);
    CHECK(r.narrow_xor == (base + exclusive(lane, by, width)) * 3);
    CHECK(r.real == (t ^ 1) * 0.5f && r.wide == (t ^ 1) * 0.25);
    CHECK(r.huge == (t ^ 1) * 10000000000ll);
    CHECK(r.half_sum == 240.0f);
    unsigned ballot = 0, match = 0, bits_or = 0, bits_xor = 0;
    int sum = 0;
    for (int l = 0; l < warp; ++l) {
        if (l < 32) ballot |= (unsigned)((base + l) % 3 == 0) << l;
        if (l < 32) match |= (unsigned)(l % 4 == lane % 4) << l;
        sum += base + l - 10;
        bits_or |= 1u << (base + l) % 32;
        bits_xor ^= base + l;
    }
    CHECK(r.ballot == ballot);
    CHECK(r.any == (base <= 5 && 5 < base + warp));
    CHECK(r.all == 1 && r.uniform == 1 && r.match_flag == 1);
    CHECK(r.match == match);
    CHECK(r.match_all == ALL && r.active == ALL);
    CHECK(r.sum == sum && r.least == base - 10 && r.greatest == unsigned(base + warp - 1));
    CHECK(r.bits_and == (256u | (base & ~(warp - 1))) && r.bits_or == bits_or);
    CHECK(r.bits_xor == bits_xor && r.type_of_short == 4);
}

__global__ void votes_of_block(int* results) {
    const int t = threadIdx.x;
    results[t] = __syncthreads_count(t % 5 == 0);
    results[t] += __syncthreads_and(t >= 0) * 1000 + __syncthreads_or(t == 77) * 10000;
}

// Lanes of a branch agree on a mask of their own.
__global__ void halves(int* results) {
    const int t = threadIdx.x, lane = t % 32;
    if (t >= 32) return;
    if (lane < 16) results[lane] = __shfl_sync(0x0000ffffu, lane, 3);
    else results[lane] = __shfl_xor_sync(0xffff0000u, lane, 8) + __popc(__activemask()) * 100;
}

int main() {
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    const int threads = 128;
    Results* results;
    cudaMallocManaged(&results, threads * sizeof(Results));
    for (int by : {0, 1, 2, 7, 16, 31})
        for (int width : {2, 4, 8, 16, 32}) {
            check_case = by * 100 + width;
            everything<<<1, threads>>>(results, by, width);
            cudaDeviceSynchronize();
            for (int t = 0; t < threads; ++t)
                check_one(results[t], t, by, width, properties.warpSize);
        }
    int* counts;
    cudaMallocManaged(&counts, threads * sizeof(int));
    votes_of_block<<<1, threads>>>(counts);
    cudaDeviceSynchronize();
    for (int t = 0; t < threads; ++t) CHECK(counts[t] == 26 + 1000 + 10000);
    halves<<<1, 32>>>(counts);
    cudaDeviceSynchronize();
    for (int t = 0; t < 32; ++t) CHECK(counts[t] == (t < 16 ? 3 : (t ^ 8) + 1600));
    return finish();
}
