// what: shared memory is written again while a box of it is still on its way to memory
// expect: wrong
// widths: 32
// arch: sm_90
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "async.h"
#include "check.h"

constexpr int width = 64, turns = 4;

__global__ void double_rows(const float* in, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float row[width];
    for (int turn = 0; turn < turns; ++turn) {
        row[threadIdx.x] = 2 * in[turn * width + threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0) {
            store_box(&out, row, 0, turn);
#ifndef BUG
            wait_stores();
#endif
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) wait_stores();
}

int main() {
    const auto in = numbers<float>(turns * width);
    std::vector<float> want;
    for (float v : in) want.push_back(2 * v);
    float* out = device_zeros<float>(turns * width);
    double_rows<<<1, width>>>(to_device(in), map_of(out, turns, width, 1, width));
    finish();
    return check(to_host(out, turns * width), want);
}
