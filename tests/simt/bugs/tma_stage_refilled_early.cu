// what: a producer refills a stage without waiting for those who still read it
// expect: SX201 | SX405 | wrong
// widths: 32
// arch: sm_90
// sanitizer: racecheck
// group: races
// checks: hangs
#include <cuda_runtime.h>

#include "async.h"
#include "check.h"

constexpr int stages = 2, width = 64, readers = 64, turns = 6;

// Sums over rows: the last warp brings them, the others add.
__global__ void add_rows(const __grid_constant__ CUtensorMap in, float* out) {
    __shared__ alignas(128) float ring[stages][width];
    __shared__ uint64_t full[stages], empty[stages];
    if (threadIdx.x == 0)
        for (int s = 0; s < stages; ++s) {
            init(&full[s], 1);
            init(&empty[s], readers);
        }
    __syncthreads();
    if (threadIdx.x == readers) {
        for (int turn = 0; turn < turns; ++turn) {
            const int s = turn % stages;
#ifndef BUG
            if (turn >= stages) wait(&empty[s], turn / stages % 2 ^ 1);
#endif
            expect(&full[s], sizeof ring[s]);
            load_box(ring[s], &in, 0, turn, &full[s]);
        }
    } else if (threadIdx.x < readers) {
        float sum = 0;
        for (int turn = 0; turn < turns; ++turn) {
            const int s = turn % stages;
            wait(&full[s], turn / stages % 2);
            sum += ring[s][threadIdx.x];
            arrive(&empty[s]);
        }
        out[threadIdx.x] = sum;
    }
}

int main() {
    const auto in = numbers<float>(turns * width);
    std::vector<float> want(width);
    for (int i = 0; i < turns * width; ++i) want[i % width] += in[i];
    float* out = device_array<float>(width);
    add_rows<<<1, readers + 32>>>(map_of(to_device(in), turns, width, 1, width), out);
    finish();
    return check(to_host(out, width), want);
}
