// mechanism: a graph for each size, whose pointers are set anew in each call
// backend: cuda
// op: relu
#include <map>

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

struct Kept {
    cudaGraphExec_t launch;
    cudaGraphNode_t node;
};
static std::map<int64_t, Kept> graphs;

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    void* arguments[] = {&x, &y, &n};
    cudaKernelNodeParams call = {};
    call.func = (void*)relu_kernel;
    call.gridDim = dim3((unsigned)((n + 255) / 256));
    call.blockDim = dim3(256);
    call.kernelParams = arguments;
    const auto found = graphs.find(n);
    if (found == graphs.end()) {
        cudaGraph_t graph;  // lives as long as its node
        Kept& made = graphs[n];
        cudaGraphCreate(&graph, 0);
        cudaGraphAddKernelNode(&made.node, graph, nullptr, 0, &call);
        cudaGraphInstantiate(&made.launch, graph, 0);
    } else {
        cudaGraphExecKernelNodeSetParams(found->second.launch, found->second.node, &call);
    }
    cudaGraphLaunch(graphs[n].launch, stream);
    return (int)cudaGetLastError();
}
