// what: the depth of a degenerate tree is found by recursion, one frame per node
// expect: SX404 | error
// widths: 32 64
// sanitizer: memcheck
// group: launch
#include <cuda_runtime.h>

#include "check.h"

struct Node {
    int left, right;  // -1: none
};

#ifdef BUG
__device__ __noinline__ int depth(const Node* tree, int node) {
    if (node < 0) return 0;
    const int left = depth(tree, tree[node].left), right = depth(tree, tree[node].right);
    return 1 + max(left, right);
}
#else
__device__ int depth(const Node* tree, int node) {  // of a tree whose parents come first
    int deepest = 0, level = 1;
    for (; node >= 0; ++level) {
        const Node here = tree[node];
        deepest = max(deepest, level);
        node = here.left >= 0 ? here.left : here.right;  // a list: at most one child
    }
    return deepest;
}
#endif

__global__ void depths(const Node* tree, const int* roots, int* out) {
    out[threadIdx.x] = depth(tree, roots[threadIdx.x]);
}

int main() {
    constexpr int n = 40000;
    std::vector<Node> tree(n);
    for (int i = 0; i < n; ++i) {
        const int child = i + 1 < n ? i + 1 : -1;
        tree[i] = i % 2 ? Node{-1, child} : Node{child, -1};
    }
    const std::vector<int> roots = {n - 1, n / 2, 0}, want = {1, n / 2, n};

    int* out = device_array<int>(3);
    depths<<<1, 3>>>(to_device(tree), to_device(roots), out);
    finish();
    return check(to_host(out, 3), want);
}
