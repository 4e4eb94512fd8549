// An assertion that fails in a kernel ends the launch, and the context with it.
#include <cassert>

#include "expect.h"

__global__ void checked(int* p, int limit) {
    const int i = (int)threadIdx.x;
    assert(i >= 0);
    assert(i < limit && "the index is below the limit");  // SX407
    p[i] = i;
    if (i == 0) printf("thread %d of %d\n", i, (int)blockDim.x);
}

int main() {
    int* p;
    cudaMalloc(&p, 128);
    checked<<<1, 32>>>(p, 32);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    checked<<<1, 32>>>(p, 7);
    EXPECT(cudaDeviceSynchronize() == cudaErrorAssert);
    EXPECT(cudaGetLastError() == cudaErrorAssert);
    EXPECT(cudaFree(p) == cudaErrorAssert);
    assert(unmet >= 0);
    return unmet != 0;
}
