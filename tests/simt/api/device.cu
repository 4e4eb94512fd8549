// The device is the target whose facts the run was given: an H100's here.
#include <cstring>

#include "expect.h"

__global__ void kernel(float* p) { p[threadIdx.x] = 0; }
template <int N>
__global__ void sized(float* p) { p[threadIdx.x] = N; }

static size_t per_thread(int threads) { return 64 * (size_t)threads; }

static int attribute(cudaDeviceAttr which) {
    int value = -1;
    EXPECT(cudaDeviceGetAttribute(&value, which, 0) == cudaSuccess);
    return value;
}

static void facts() {
    int count, device = -1, version;
    EXPECT(cudaGetDeviceCount(&count) == cudaSuccess && count == 1);
    EXPECT(cudaSetDevice(0) == cudaSuccess && cudaGetDevice(&device) == cudaSuccess && !device);
    EXPECT(cudaRuntimeGetVersion(&version) == cudaSuccess && version == CUDART_VERSION);
    EXPECT(cudaDriverGetVersion(&version) == cudaSuccess && version >= CUDART_VERSION);
    cudaDeviceProp p;
    EXPECT(cudaGetDeviceProperties(&p, 0) == cudaSuccess);
    EXPECT(p.major == 9 && p.minor == 0 && p.warpSize == 32 && strlen(p.name) > 0);
    EXPECT(p.multiProcessorCount == 132 && p.maxThreadsPerMultiProcessor == 2048);
    EXPECT(p.sharedMemPerBlock == 48 << 10 && p.sharedMemPerBlockOptin == 227 << 10);
    EXPECT(p.maxGridSize[0] == 2147483647 && p.maxGridSize[1] == 65535);
    EXPECT(cudaGetDeviceProperties(&p, 1) == cudaErrorInvalidDevice);
    EXPECT(attribute(cudaDevAttrMaxSharedMemoryPerBlock) == 48 << 10);
    EXPECT(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) == 227 << 10);
    EXPECT(attribute(cudaDevAttrMultiProcessorCount) == 132);
    EXPECT(attribute(cudaDevAttrMaxBlockDimZ) == 64);
    EXPECT(attribute(cudaDevAttrComputeCapabilityMajor) == 9);
    EXPECT(attribute(cudaDevAttrCooperativeLaunch) == 1);
    int clock;  // no CPU has the target's
    EXPECT(cudaDeviceGetAttribute(&clock, cudaDevAttrMemoryClockRate, 0) == 801);  // SX409
    int can = -1;
    EXPECT(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaErrorInvalidDevice && can == -1);
    EXPECT(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessUnsupported);
    EXPECT(cudaGetLastError() == cudaErrorPeerAccessUnsupported);
    size_t limit;
    EXPECT(cudaDeviceGetLimit(&limit, cudaLimitStackSize) == cudaSuccess && limit == 1024);
    EXPECT(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 26) == cudaSuccess);
    EXPECT(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize) == cudaSuccess && limit == 1 << 26);
}

static void occupancy() {
    int blocks, grid, block;
    EXPECT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 1024, 0) == cudaSuccess);
    EXPECT(blocks == 2);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sized<3>, 32, 0);
    EXPECT(blocks == 32);  // of one warp: the limit on blocks
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 128, 40 << 10);
    EXPECT(blocks == 5);  // 228 KB, each block 40 KB and 1 KB of the system's
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 96, 0);
    EXPECT(blocks == 21);  // 64 warps
    EXPECT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 2000, 0) == cudaSuccess);
    EXPECT(blocks == 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 128, 100 << 10);
    EXPECT(blocks == 0);  // not granted
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 128, 100 << 10);
    EXPECT(blocks == 2);
    EXPECT(cudaOccupancyMaxPotentialBlockSize(&grid, &block, kernel) == cudaSuccess);
    EXPECT(block == 1024 && grid == 2 * 132);
    EXPECT(cudaOccupancyMaxPotentialBlockSize(&grid, &block, sized<1>, 0, 300) == cudaSuccess);
    EXPECT(block == 256 && grid == 8 * 132);
    EXPECT(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &block, sized<1>, per_thread) ==
           cudaSuccess);
    EXPECT(block * 64 <= 48 << 10);
    cudaFuncAttributes of;
    EXPECT(cudaFuncGetAttributes(&of, kernel) == cudaSuccess);  // SX409
    EXPECT(of.maxThreadsPerBlock == 1024 && of.maxDynamicSharedSizeBytes == 100 << 10);
    const auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    EXPECT(cudaFuncSetAttribute(kernel, most, 228 << 10) == cudaErrorInvalidValue);  // SX402
    EXPECT(cudaFuncSetCacheConfig(sized<1>, cudaFuncCachePreferShared) == cudaSuccess);
}

int main() {
    facts();
    occupancy();
    return unmet != 0;
}
