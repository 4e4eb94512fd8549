// Graphs: nodes made by hand and by capture run in the order of their edges, as often as the graph is
// launched, with the arguments that they had when they were made.
#include "expect.h"

__global__ void add(int* p, int n, int by) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] += by;
}
template <class T>
__global__ void multiply(T* p, T by) { p[threadIdx.x] *= by; }
static void count(void* data) { ++*static_cast<int*>(data); }

static int* device;
static int first() {
    int value;
    cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost);
    return value;
}

static void by_hand() {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t clear, adding, multiplying, back, hosts;
    EXPECT(cudaGraphCreate(&graph, 0) == cudaSuccess);
    int n = 64, by = 5, calls = 0, result[64] = {};
    void* arguments[] = {&device, &n, &by};
    cudaKernelNodeParams kernel = {0};
    kernel.func = (void*)multiply<int>;
    kernel.gridDim = dim3(1, 1, 1);
    kernel.blockDim = dim3(64, 1, 1);
    kernel.sharedMemBytes = 0;
    void* factors[] = {&device, &by};
    kernel.kernelParams = factors;
    kernel.extra = NULL;
    EXPECT(cudaGraphAddKernelNode(&multiplying, graph, NULL, 0, &kernel) == cudaSuccess);
    by = 3;
    kernel.func = (void*)add;
    kernel.gridDim = dim3(2);
    kernel.blockDim = dim3(32);
    kernel.kernelParams = arguments;
    cudaMemsetParams memset = {0};
    memset.dst = device;
    memset.elementSize = sizeof(int);
    memset.width = 64;
    memset.height = 1;
    EXPECT(cudaGraphAddMemsetNode(&clear, graph, NULL, 0, &memset) == cudaSuccess);
    EXPECT(cudaGraphAddKernelNode(&adding, graph, &clear, 1, &kernel) == cudaSuccess);
    EXPECT(cudaGraphAddDependencies(graph, &adding, &multiplying, 1) == cudaSuccess);
    cudaMemcpy3DParms copy = {0};
    copy.srcPtr = make_cudaPitchedPtr(device, sizeof result, 64, 1);
    copy.dstPtr = make_cudaPitchedPtr(result, sizeof result, 64, 1);
    copy.extent = make_cudaExtent(sizeof result, 1, 1);
    copy.kind = cudaMemcpyDeviceToHost;
    EXPECT(cudaGraphAddMemcpyNode(&back, graph, &multiplying, 1, &copy) == cudaSuccess);
    cudaHostNodeParams host = {count, &calls};
    EXPECT(cudaGraphAddHostNode(&hosts, graph, &back, 1, &host) == cudaSuccess);
    size_t nodes = 0;
    EXPECT(cudaGraphGetNodes(graph, NULL, &nodes) == cudaSuccess && nodes == 5);
    cudaGraphNodeType type;
    EXPECT(cudaGraphNodeGetType(clear, &type) == cudaSuccess && type == cudaGraphNodeTypeMemset);
    EXPECT(cudaGraphInstantiate(&exec, graph, NULL, NULL, 0) == cudaSuccess);
    by = 100;  // too late
    for (int i = 0; i < 2; ++i) EXPECT(cudaGraphLaunch(exec, 0) == cudaSuccess);
    EXPECT(result[0] == 15 && result[63] == 15 && calls == 2);
    by = 4;
    EXPECT(cudaGraphExecKernelNodeSetParams(exec, adding, &kernel) == cudaSuccess);
    EXPECT(cudaGraphLaunch(exec, 0) == cudaSuccess && result[7] == 20);
    EXPECT(cudaGraphAddDependencies(graph, &multiplying, &clear, 1) == cudaSuccess);
    EXPECT(cudaGraphInstantiate(&exec, graph, 0) == cudaErrorInvalidValue);  // a circle
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    EXPECT(cudaGraphExecDestroy(exec) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess);
}

static void by_capture() {
    cudaStream_t stream, other;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamCaptureStatus status;
    cudaStreamCreate(&stream);
    cudaStreamCreate(&other);
    cudaEventCreate(&fork);
    cudaEventCreate(&join);
    cudaMemset(device, 0, 64 * sizeof(int));
    EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    int value = 2;
    add<<<2, 32, 0, stream>>>(device, 64, value);
    value = 1000;
    EXPECT(cudaGetLastError() == cudaSuccess);
    cudaEventRecord(fork, stream);
    cudaStreamWaitEvent(other, fork, 0);
    multiply<<<1, 64, 0, other>>>(device, 3);
    cudaEventRecord(join, other);
    cudaStreamWaitEvent(stream, join, 0);
    EXPECT(cudaStreamIsCapturing(other, &status) == cudaSuccess);
    EXPECT(status == cudaStreamCaptureStatusActive);
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaGetLastError() == cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    EXPECT(first() == 0);  // nothing has run
    EXPECT(cudaStreamIsCapturing(other, &status) == cudaSuccess);
    EXPECT(status == cudaStreamCaptureStatusNone);
    EXPECT(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    EXPECT(cudaGraphDestroy(graph) == cudaSuccess);
    EXPECT(cudaGraphLaunch(exec, stream) == cudaSuccess && first() == 6);
    EXPECT(cudaGraphLaunch(exec, stream) == cudaSuccess && first() == 24);
    add<<<2, 32, 0, stream>>>(device, 64, 1);  // it works as before
    EXPECT(cudaStreamSynchronize(stream) == cudaSuccess && first() == 25);
    cudaGraphExecDestroy(exec);
}

int main() {
    cudaMalloc(&device, 64 * sizeof(int));
    by_hand();
    by_capture();
    cudaFree(device);
    return unmet != 0;
}
