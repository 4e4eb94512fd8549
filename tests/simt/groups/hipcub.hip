// hipCUB: the default logical warp is the hardware's, of 32 or 64 lanes.
#include <hip/hip_runtime.h>
#include <hipcub/hipcub.hpp>

#include "check.h"

__global__ void everything(int* out) {
    using Warp = hipcub::WarpReduce<int>;
    using Half = hipcub::WarpReduce<int, 32>;
    using Block = hipcub::BlockReduce<int, 256, hipcub::BLOCK_REDUCE_RAKING>;
    using Scan = hipcub::BlockScan<int, 256>;
    __shared__ typename Warp::TempStorage warps[8];
    __shared__ typename Half::TempStorage halves[8];
    __shared__ typename Block::TempStorage block;
    __shared__ typename Scan::TempStorage scan;
    const int t = threadIdx.x;
    const int of_warp = Warp(warps[t / warpSize]).Sum(1);
    const int of_half = Half(halves[t / 32]).Sum(1);
    const int of_block = Block(block).Sum(t);
    int before;
    Scan(scan).ExclusiveSum(2, before);
    out[t] = before;
    if (t == 0) {
        out[256] = of_warp;
        out[257] = of_half;
        out[258] = of_block;
    }
}

int main() {
    hipDeviceProp_t properties;
    (void)hipGetDeviceProperties(&properties, 0);
    int* out;
    (void)hipMallocManaged(&out, 300 * sizeof(int));
    everything<<<1, 256>>>(out);
    (void)hipDeviceSynchronize();
    for (int t = 0; t < 256; ++t) CHECK(out[t] == 2 * t);
    CHECK(out[256] == properties.warpSize && out[257] == 32 && out[258] == 255 * 128);
    void* temporary = nullptr;
    size_t bytes = 0;
    (void)hipcub::DeviceReduce::Sum(temporary, bytes, out, out + 299, 256);
    (void)hipMalloc(&temporary, bytes);
    CHECK(hipcub::DeviceReduce::Sum(temporary, bytes, out, out + 299, 256) == hipSuccess);
    CHECK(out[299] == 255 * 256);
    return finish();
}
