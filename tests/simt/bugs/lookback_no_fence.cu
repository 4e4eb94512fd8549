// what: a look-back scan publishes a tile's sum and its status with no fence between
// expect: SX203
// widths: 32 64
// pitfall: 51
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 64;
enum Status { none, aggregate, prefix };

struct Tile {
    int status, sum, running;
};

__device__ void publish(Tile* tile, int* cell, int value, Status status) {
    *cell = value;
#ifndef BUG
    __threadfence();
#endif
    atomicExch(&tile->status, status);
}

__global__ void inclusive_scan(const int* x, int* y, Tile* tiles, int* started) {
    __shared__ int me, before, s[block];
    const int t = threadIdx.x;
    if (t == 0) me = atomicAdd(started, 1);  // so the tiles before this one are under way
    __syncthreads();
    s[t] = x[me * block + t];
    __syncthreads();
    for (int d = 1; d < block; d *= 2) {
        const int value = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += value;
        __syncthreads();
    }
    if (t == 0) {
        const int sum = s[block - 1];
        publish(&tiles[me], &tiles[me].sum, sum, aggregate);
        before = 0;
        for (int look = me - 1; look >= 0; --look) {
            int status = none;
            while (status == none) status = atomicAdd(&tiles[look].status, 0);
            __threadfence();
            before += status == prefix ? tiles[look].running : tiles[look].sum;
            if (status == prefix) break;
        }
        publish(&tiles[me], &tiles[me].running, before + sum, prefix);
    }
    __syncthreads();
    y[me * block + t] = before + s[t];
}

int main() {
    constexpr int tiles = 12, n = tiles * block;
    const auto x = numbers<int>(n);
    std::vector<int> want(x);
    for (int i = 1; i < n; ++i) want[i] += want[i - 1];

    int *y = device_array<int>(n), *started = device_zeros<int>(1);
    inclusive_scan<<<tiles, block>>>(to_device(x), y, device_zeros<Tile>(tiles), started);
    finish();
    return check(to_host(y, n), want);
}
