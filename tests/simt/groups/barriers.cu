// cuda::barrier and cuda::pipeline, and groups that forget their kind. Exits 0 when all is right.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_runtime.h>

#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

static std::vector<int> to_host(const int* p, int n) {
    std::vector<int> host(n);
    cudaMemcpy(host.data(), p, n * sizeof(int), cudaMemcpyDeviceToHost);
    return host;
}
static int* to_device(const std::vector<int>& host) {
    int* p;
    cudaMalloc(&p, host.size() * sizeof(int));
    cudaMemcpy(p, host.data(), host.size() * sizeof(int), cudaMemcpyHostToDevice);
    return p;
}

// Each phase every thread reads what its neighbour wrote in it.
__global__ void phases(int* out, int rounds) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int cell[128];
    const int t = threadIdx.x, n = blockDim.x;
    if (t == 0) init(&bar, n);
    __syncthreads();
    int sum = 0;
    for (int r = 0; r < rounds; ++r) {
        cell[t] = t * (r + 1);
        auto token = bar.arrive();
        sum += r;
        bar.wait(std::move(token));
        sum += cell[(t + 1) % n];
        bar.arrive_and_wait();
    }
    out[t] = sum;
}

// The first half leaves after one phase.
__global__ void leaving(int* out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    const int t = threadIdx.x;
    if (t == 0) init(&bar, blockDim.x);
    __syncthreads();
    if (t < (int)blockDim.x / 2) {
        bar.arrive_and_drop();
        return;
    }
    bar.arrive_and_wait();
    bar.arrive_and_wait();
    out[t] = 1;
}

template <class State>
__device__ void staged_sum(cg::thread_block block, State* state, const int* from, int* out,
                           int batches) {
    __shared__ int tile[2][64];
    auto pipe = cuda::make_pipeline(block, state);
    int sum = 0;
    for (int fetched = 0, used = 0; used < batches; ++used) {
        for (; fetched < batches && fetched < used + 2; ++fetched) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tile[fetched % 2], from + fetched * 64,
                               cuda::aligned_size_t<4>(64 * sizeof(int)), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += tile[used % 2][63 - block.thread_rank()];
        pipe.consumer_release();
    }
    out[block.thread_rank()] = sum;
}
__global__ void staged(const int* from, int* out, int batches) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    staged_sum(cg::this_thread_block(), &state, from, out, batches);
}

// Warps of producers fill what warps of consumers empty.
__global__ void roles(const int* from, int* out, int batches) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 3> state;
    __shared__ int tile[3][64];
    const cg::thread_block block = cg::this_thread_block();
    const bool producer = threadIdx.x < 64;
    auto pipe = cuda::make_pipeline(
        block, &state, producer ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
    int sum = 0;
    for (int b = 0; b < batches; ++b) {
        if (producer) {
            pipe.producer_acquire();
            cuda::memcpy_async(&tile[b % 3][threadIdx.x], from + b * 64 + threadIdx.x, 4, pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            sum += tile[b % 3][127 - threadIdx.x];
            pipe.consumer_release();
        }
    }
    if (!producer) out[threadIdx.x - 64] = sum;
}

__device__ int count(const cg::thread_group& group) {
    group.sync();
    return (int)group.size();
}
__global__ void kinds(int* out) {
    __shared__ cg::block_tile_memory<128> memory;
    const cg::thread_block block = cg::this_thread_block(memory);
    const auto tile = cg::tiled_partition<8>(block);
    const cg::thread_group any = tile;
    out[threadIdx.x] = count(any) + 100 * (int)any.thread_rank() + count(block);
}

int main() {
    int* out = to_device(std::vector<int>(128));
    phases<<<1, 128>>>(out, 5);
    std::vector<int> got = to_host(out, 128);
    for (int t = 0; t < 128; ++t) CHECK(got[t] == 10 + 15 * ((t + 1) % 128));
    leaving<<<1, 128>>>(out);
    CHECK(to_host(out, 128)[127] == 1);
    std::vector<int> numbers(64 * 7);
    for (int i = 0; i < 64 * 7; ++i) numbers[i] = i * i % 101;
    int* from = to_device(numbers);
    for (int form = 0; form < 2; ++form) {
        if (form) roles<<<1, 128>>>(from, out, 7);
        else staged<<<1, 64>>>(from, out, 7);
        got = to_host(out, 64);
        for (int t = 0; t < 64; ++t) {
            int want = 0;
            for (int b = 0; b < 7; ++b) want += numbers[b * 64 + 63 - t];
            CHECK(got[t] == want);
        }
    }
    kinds<<<1, 128>>>(out);
    got = to_host(out, 128);
    for (int t = 0; t < 128; ++t) CHECK(got[t] == 8 + 100 * (t % 8) + 128);
    return finish();
}
