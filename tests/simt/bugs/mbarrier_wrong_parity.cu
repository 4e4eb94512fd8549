// what: the parity that is waited for does not change, so that every second wait is none
// expect: SX107 | SX201 | wrong
// widths: 32
// arch: sm_90
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "async.h"
#include "check.h"

constexpr int width = 64, turns = 4;

__global__ void add_rows(const __grid_constant__ CUtensorMap in, float* out) {
    __shared__ alignas(128) float row[width];
    __shared__ uint64_t full;
    if (threadIdx.x == 0) init(&full, 1);
    __syncthreads();
    float sum = 0;
    for (int turn = 0; turn < turns; ++turn) {
        if (threadIdx.x == 0) {
            expect(&full, sizeof row);
            load_box(row, &in, 0, turn, &full);
        }
#ifdef BUG
        wait(&full, 0);
#else
        wait(&full, turn % 2);
#endif
        sum += row[threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

int main() {
    const auto in = numbers<float>(turns * width);
    std::vector<float> want(width);
    for (int i = 0; i < turns * width; ++i) want[i % width] += in[i];
    float* out = device_array<float>(width);
    add_rows<<<1, width>>>(map_of(to_device(in), turns, width, 1, width), out);
    finish();
    return check(to_host(out, width), want);
}
