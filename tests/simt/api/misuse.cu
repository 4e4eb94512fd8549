// What a device refuses is refused, with a finding at the line of the call. The lines end in the
// code that the test looks for.
#include "expect.h"

__device__ int four[4];

static cudaError_t fill(const void* symbol, const float* from, size_t bytes) {
    return cudaMemcpyToSymbol(symbol, from, bytes);
}

struct Scale {
    int four[4];
    cudaError_t fill(const float* from) { return cudaMemcpyToSymbol(four, from, 16); }  // SX118
};

static void hidden_by_the_host(const float* host) {
    int four[4];
    EXPECT(cudaMemcpyToSymbol(four, host, 16) == cudaErrorInvalidSymbol);  // SX118
    static int hits;
    EXPECT(cudaMemcpyFromSymbol(four, hits, 4) == cudaErrorInvalidSymbol);  // SX118
    int* pointer = &::four[0];
    void* at;
    EXPECT(cudaGetSymbolAddress(&at, pointer) == cudaErrorInvalidSymbol);  // SX118
    EXPECT(Scale().fill(host) == cudaErrorInvalidSymbol);
    EXPECT(fill(::four, host, 16) == cudaSuccess);
}

int main() {
    float host[8] = {};
    float* a;
    cudaMalloc(&a, 16);
    EXPECT(cudaMemcpy(a, host, 32, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);  // SX101
    EXPECT(cudaMemcpy(host, a + 3, 8, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);  // SX101
    EXPECT(cudaMemset(a, 0, 17) == cudaErrorInvalidValue);  // SX101
    EXPECT(cudaMemcpy(host, a, 16, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);  // SX104
    EXPECT(cudaMemcpy(a, a, 16, cudaMemcpyDeviceToHost) == cudaSuccess);  // SX104
    EXPECT(cudaMemset(host, 0, 16) == cudaErrorInvalidValue);  // SX104
    EXPECT(cudaMemset(nullptr, 0, 16) == cudaErrorInvalidValue);  // SX112
    EXPECT(cudaMemcpyToSymbol(four, host, 20) == cudaErrorInvalidValue);  // SX101
    EXPECT(cudaMemcpyFromSymbol(host, four, 8, 12) == cudaErrorInvalidValue);  // SX101
    hidden_by_the_host(host);
    EXPECT(cudaMemPrefetchAsync(a, 16, 0) == cudaErrorInvalidValue);  // SX104
    EXPECT(cudaMemcpy(nullptr, a, 16, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    EXPECT(cudaMemcpyToSymbol(four, host, 4, 0, cudaMemcpyDeviceToHost) ==
           cudaErrorInvalidMemcpyDirection);
    EXPECT(cudaMalloc((void**)nullptr, 4) == cudaErrorInvalidValue);
    EXPECT(cudaFreeHost(a) == cudaErrorInvalidValue);  // SX113
    EXPECT(cudaFree(a + 1) == cudaErrorInvalidValue);  // SX113
    EXPECT(cudaFree(host) == cudaErrorInvalidValue);  // SX113
    EXPECT(cudaFree(a) == cudaSuccess);
    EXPECT(cudaFree(a) == cudaErrorInvalidValue);  // SX113
    EXPECT(cudaMemcpy(host, a, 16, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);  // SX105
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    EXPECT(cudaSetDevice(1) == cudaErrorInvalidDevice);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    EXPECT(cudaStreamDestroy(stream) == cudaSuccess);
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaEventRecord((cudaEvent_t)&host) == cudaErrorInvalidResourceHandle);
    return unmet != 0;
}
