// what: two threads both find a vertex unvisited and both put it on the next frontier
// expect: SX202 | SX203
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int side = 6, vertices = side * side;  // a grid graph
constexpr int capacity = 2048;                   // of a frontier, with as many duplicates as can be

__global__ void expand(const int* frontier, int size, int* depth, int* next, int* found, int now) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 4 * size) return;
    const int from = frontier[i / 4], way = i % 4;
    const int x = from % side + (way == 0) - (way == 1), y = from / side + (way == 2) - (way == 3);
    if (x < 0 || x >= side || y < 0 || y >= side) return;
    const int to = y * side + x;
#ifdef BUG
    if (depth[to] != -1) return;
    depth[to] = now;
#else
    if (atomicCAS(&depth[to], -1, now) != -1) return;
#endif
    next[atomicAdd(found, 1)] = to;
}

int main() {
    std::vector<int> start(vertices, -1), want(vertices), sizes, layers;
    start[0] = 0;
    for (int v = 0; v < vertices; ++v) want[v] = v % side + v / side;

    int *depth = to_device(start), *frontier = device_zeros<int>(capacity);
    int* next = device_array<int>(capacity);
    for (int size = 1, now = 1; size > 0; ++now) {
        int* found = device_zeros<int>(1);
        expand<<<(4 * size + 31) / 32, 32>>>(frontier, size, depth, next, found, now);
        finish();
        size = to_host(found, 1)[0];
        sizes.push_back(size);
        layers.push_back(std::count(want.begin(), want.end(), now));
        std::swap(frontier, next);
    }
    return check(to_host(depth, vertices), want) | check(sizes, layers);
}
