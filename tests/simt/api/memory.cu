// Allocation and copies of every kind, used as they should be: no finding.
#include <cstring>
#include <memory>
#include <vector>

#include "expect.h"

__device__ float table[8];
__constant__ int limits[3] = {1, 2, 3};
__managed__ int counter = 5;

__global__ void use(float* out) { out[threadIdx.x] = table[threadIdx.x] + (float)limits[2]; }
__global__ void double_all(int* p, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] *= 2;
}

static void copies() {
    float host[8], back[8] = {};
    for (int i = 0; i < 8; ++i) host[i] = (float)i;
    float *a, *b;
    EXPECT(cudaMalloc(&a, sizeof host) == cudaSuccess);
    EXPECT(cudaMalloc((void**)&b, sizeof host) == cudaSuccess);
    EXPECT(cudaMemcpy(a, host, sizeof host, cudaMemcpyHostToDevice) == cudaSuccess);
    EXPECT(cudaMemcpyAsync(b, a, sizeof host, cudaMemcpyDeviceToDevice) == cudaSuccess);
    EXPECT(cudaMemcpy(back, b, sizeof host, cudaMemcpyDefault) == cudaSuccess);
    EXPECT(!memcmp(host, back, sizeof host));
    EXPECT(cudaMemset(b, 0, 16) == cudaSuccess);
    EXPECT(cudaMemcpyPeer(back, 0, b, 0, 0) == cudaSuccess);
    EXPECT(cudaMemcpy(back, b, sizeof host, cudaMemcpyDeviceToHost) == cudaSuccess);
    EXPECT(back[3] == 0 && back[4] == 4);
    EXPECT(cudaMemcpy(back, host, sizeof host, cudaMemcpyHostToHost) == cudaSuccess);
    EXPECT(cudaFree(a) == cudaSuccess && cudaFree(b) == cudaSuccess);
    EXPECT(cudaFree(nullptr) == cudaSuccess);
    void* none = &none;
    EXPECT(cudaMalloc(&none, 0) == cudaSuccess && none == nullptr);
}

static void pitched() {
    char* p;
    size_t pitch;
    EXPECT(cudaMallocPitch(&p, &pitch, 100, 7) == cudaSuccess);
    EXPECT(pitch >= 100 && pitch % 256 == 0);
    std::vector<char> in(700), out(700);
    for (int i = 0; i < 700; ++i) in[i] = (char)(i * 3);
    EXPECT(cudaMemset2D(p, pitch, 1, 100, 7) == cudaSuccess);
    EXPECT(cudaMemcpy2D(p, pitch, in.data(), 100, 100, 7, cudaMemcpyHostToDevice) == cudaSuccess);
    EXPECT(cudaMemcpy2D(out.data(), 100, p, pitch, 100, 7, cudaMemcpyDeviceToHost) == cudaSuccess);
    EXPECT(in == out);
    EXPECT(cudaMemcpy2D(p, 50, in.data(), 100, 100, 7, cudaMemcpyHostToDevice) ==
           cudaErrorInvalidPitchValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidPitchValue);
    cudaFree(p);
}

static void symbols() {
    const float values[4] = {10, 11, 12, 13};
    EXPECT(cudaMemcpyToSymbol(table, values, sizeof values) == cudaSuccess);
    EXPECT(cudaMemcpyToSymbol(table, values, sizeof values, 16) == cudaSuccess);
    const int three[3] = {7, 8, 9};
    EXPECT(cudaMemcpyToSymbol(limits, three, sizeof three) == cudaSuccess);
    int got[2] = {};
    EXPECT(cudaMemcpyFromSymbol(got, limits, 8, 4) == cudaSuccess && got[1] == 9);
    void* at;
    size_t bytes;
    EXPECT(cudaGetSymbolAddress(&at, table) == cudaSuccess);
    EXPECT(cudaGetSymbolSize(&bytes, table) == cudaSuccess && bytes == sizeof table);
    EXPECT(cudaMemset(at, 0, 4) == cudaSuccess);
    EXPECT(cudaMemcpy((float*)at + 1, values, 4, cudaMemcpyHostToDevice) == cudaSuccess);
    float* out;
    cudaMalloc(&out, 32);
    use<<<1, 8>>>(out);
    float host[8];
    EXPECT(cudaMemcpy(host, out, 32, cudaMemcpyDeviceToHost) == cudaSuccess);
    EXPECT(host[0] == 9 && host[1] == 19 && host[7] == 22);
    cudaFree(out);
    EXPECT(counter == 5);
}

static void other_spaces() {
    int *managed, *pinned, *seen;
    EXPECT(cudaMallocManaged(&managed, 40) == cudaSuccess);
    for (int i = 0; i < 10; ++i) managed[i] = i;
    EXPECT(cudaMemAdvise(managed, 40, cudaMemAdviseSetReadMostly, 0) == cudaSuccess);
    EXPECT(cudaMemPrefetchAsync(managed, 40, 0) == cudaSuccess);
    double_all<<<1, 32>>>(managed, 10);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess && managed[9] == 18);
    EXPECT(cudaHostAlloc(&pinned, 40, cudaHostAllocMapped) == cudaSuccess);
    for (int i = 0; i < 10; ++i) pinned[i] = i;
    EXPECT(cudaHostGetDevicePointer(&seen, pinned, 0) == cudaSuccess);
    double_all<<<1, 32>>>(seen, 10);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess && pinned[9] == 18);

    cudaPointerAttributes of;
    EXPECT(cudaPointerGetAttributes(&of, managed) == cudaSuccess);
    EXPECT(of.type == cudaMemoryTypeManaged && of.hostPointer == managed);
    EXPECT(cudaPointerGetAttributes(&of, pinned) == cudaSuccess && of.type == cudaMemoryTypeHost);
    EXPECT(cudaPointerGetAttributes(&of, &of) == cudaSuccess);
    EXPECT(of.type == cudaMemoryTypeUnregistered && of.devicePointer == nullptr);
    EXPECT(cudaFree(managed) == cudaSuccess && cudaFreeHost(pinned) == cudaSuccess);
}

static void sizes() {
    size_t before, after, total;
    EXPECT(cudaMemGetInfo(&before, &total) == cudaSuccess && before <= total);
    void* p;
    EXPECT(cudaMalloc(&p, 4 << 20) == cudaSuccess);
    cudaMemGetInfo(&after, &total);
    EXPECT(before - after == 4 << 20);
    cudaFree(p);
    EXPECT(cudaMalloc(&p, total + 1) == cudaErrorMemoryAllocation && p == nullptr);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    // As deleters, functions have the vendor's types.
    std::unique_ptr<float, decltype(&cudaFree)> owner(nullptr, &cudaFree);
    float* q;
    cudaMalloc(&q, 4);
    owner.reset(q);
}

int main() {
    copies();
    pitched();
    symbols();
    other_spaces();
    sizes();
    return unmet != 0;
}
