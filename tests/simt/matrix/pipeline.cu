// cp.async under its names in C: what has arrived when. Prints one number a line.
#include <cuda_pipeline.h>
#include <cstdio>

constexpr int COPIES = 100, THREADS = 64;

// Each thread copies into words of its own; `seen` counts how many of them have arrived.
__global__ void queue(const int* from, int* seen) {
    __shared__ __align__(16) int to[COPIES * THREADS];
    const int t = threadIdx.x;
    for (int i = 0; i < COPIES; ++i) to[i * THREADS + t] = -1;
    for (int i = 0; i < COPIES; ++i) {
        __pipeline_memcpy_async(&to[i * THREADS + t], &from[i * THREADS + t], 4);
        if (i % 10 == 9) __pipeline_commit();
    }
    const auto count = [&] {
        int arrived = 0;
        for (int i = 0; i < COPIES; ++i) {
            const int value = to[i * THREADS + t];
            arrived += value == -1 ? 0 : value == from[i * THREADS + t] ? 1 : 1000000;
        }
        return arrived;
    };
    seen[t] = count();
    __pipeline_wait_prior(8);
    seen[THREADS + t] = count();
    __pipeline_wait_prior(3);
    seen[2 * THREADS + t] = count();
    __pipeline_wait_prior(0);
    seen[3 * THREADS + t] = count();
}

__global__ void shapes(const int* from, int* seen) {
    __shared__ __align__(16) int to[THREADS][4];
    const int t = threadIdx.x;
    nvcuda::experimental::pipeline pipe;
    for (int& word : to[t]) word = -1;
    __pipeline_memcpy_async(to[t], from + 4 * t, 16, 8);  // the upper half is zeros
    pipe.commit_and_wait();
    for (int i = 0; i < 4; ++i) seen[i * THREADS + t] = to[t][i];
    nvcuda::experimental::memcpy_async(to[t][3], from[4 * t], pipe);
    nvcuda::experimental::memcpy_async(nvcuda::experimental::segment<2>(to[t]),
                                       nvcuda::experimental::segment<1>(from + 4 * t + 2), pipe);
    pipe.wait(pipe.commit());
    pipe.wait_prior<0>();
    for (int i = 0; i < 4; ++i) seen[(4 + i) * THREADS + t] = to[t][i];
}

int main() {
    int host[COPIES * THREADS], *from, *seen;
    for (int i = 0; i < COPIES * THREADS; ++i) host[i] = i;
    cudaMalloc(&from, sizeof host);
    cudaMalloc(&seen, sizeof host);
    cudaMemcpy(from, host, sizeof host, cudaMemcpyHostToDevice);
    queue<<<2, THREADS>>>(from, seen);
    cudaMemcpy(host, seen, 4 * THREADS * sizeof(int), cudaMemcpyDeviceToHost);
    for (int i = 0; i < 4; ++i) printf("%d\n", host[i * THREADS + 7]);
    shapes<<<1, THREADS>>>(from, seen);
    cudaMemcpy(host, seen, 8 * THREADS * sizeof(int), cudaMemcpyDeviceToHost);
    for (int i = 0; i < 8; ++i) printf("%d\n", host[i * THREADS + 5]);
}
