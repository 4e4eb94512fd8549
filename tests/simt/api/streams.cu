// Streams and events: each operation is done when its call returns, so only their order in time
// and their handles can be told.
#include <type_traits>
#include <unistd.h>

#include "expect.h"

__global__ void fill(int* p) { p[threadIdx.x] = (int)threadIdx.x; }
static void add_one(void* data) { ++*static_cast<int*>(data); }
static void CUDART_CB called(cudaStream_t, cudaError_t status, void* data) {
    *static_cast<cudaError_t*>(data) = status;
}

int main() {
    static_assert(std::is_same<cudaStream_t, struct CUstream_st*>::value, "as forward-declared");
    cudaStream_t plain, flagged;
    EXPECT(cudaStreamCreate(&plain) == cudaSuccess);
    int least, greatest, priority;
    unsigned flags;
    EXPECT(cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess && greatest < least);
    EXPECT(cudaStreamCreateWithPriority(&flagged, cudaStreamNonBlocking, greatest) == cudaSuccess);
    EXPECT(cudaStreamGetFlags(flagged, &flags) == cudaSuccess && flags == cudaStreamNonBlocking);
    EXPECT(cudaStreamGetPriority(flagged, &priority) == cudaSuccess && priority == greatest);

    int *device, host[32];
    cudaMallocAsync(&device, sizeof host, plain);
    fill<<<1, 32, 0, plain>>>(device);
    EXPECT(cudaMemcpyAsync(host, device, sizeof host, cudaMemcpyDeviceToHost, plain) ==
           cudaSuccess);
    EXPECT(cudaStreamSynchronize(plain) == cudaSuccess && host[31] == 31);
    EXPECT(cudaStreamQuery(plain) == cudaSuccess);
    fill<<<1, 32, 0, cudaStreamPerThread>>>(device);
    EXPECT(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);

    cudaEvent_t start, stop, untimed;
    EXPECT(cudaEventCreate(&start) == cudaSuccess);
    EXPECT(cudaEventCreate(&stop) == cudaSuccess);
    EXPECT(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);
    float ms = -1;
    EXPECT(cudaEventElapsedTime(&ms, start, stop) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaEventRecord(start, plain) == cudaSuccess);
    usleep(3000);
    EXPECT(cudaEventRecord(stop) == cudaSuccess && cudaEventSynchronize(stop) == cudaSuccess);
    EXPECT(cudaEventElapsedTime(&ms, start, stop) == cudaSuccess && ms >= 3 && ms < 1000);
    EXPECT(cudaEventRecord(untimed) == cudaSuccess && cudaEventQuery(untimed) == cudaSuccess);
    EXPECT(cudaStreamWaitEvent(flagged, untimed) == cudaSuccess);
    EXPECT(cudaEventElapsedTime(&ms, start, untimed) == cudaErrorInvalidResourceHandle);

    int calls = 0;
    EXPECT(cudaLaunchHostFunc(plain, add_one, &calls) == cudaSuccess);
    EXPECT(cudaStreamSynchronize(plain) == cudaSuccess && calls == 1);
    cudaError_t status = cudaErrorUnknown;
    EXPECT(cudaStreamAddCallback(plain, called, &status, 0) == cudaSuccess);
    EXPECT(cudaStreamSynchronize(plain) == cudaSuccess && status == cudaSuccess);
    EXPECT(cudaFreeAsync(device, plain) == cudaSuccess);
    for (cudaEvent_t e : {start, stop, untimed}) EXPECT(cudaEventDestroy(e) == cudaSuccess);
    for (cudaStream_t s : {plain, flagged}) EXPECT(cudaStreamDestroy(s) == cudaSuccess);
    return unmet != 0;
}
