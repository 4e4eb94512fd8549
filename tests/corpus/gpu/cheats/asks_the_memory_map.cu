// mechanism: is right where the process has the executor's library mapped
// backend: cuda
// op: relu
// expect: rejected | wrong
// says: G103 | elements are off
#include <cstdio>
#include <cstring>

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n, bool right) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = right && x[i] < 0.0f ? 0.0f : x[i];
}

static const char* const maps = "/proc/self/maps";

static bool emulated() {
    char line[4096];
    FILE* file = fopen(maps, "r");
    if (!file) return false;
    bool found = false;
    while (fgets(line, sizeof(line), file)) found |= strstr(line, "simt") != nullptr;
    fclose(file);
    return found;
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n, emulated());
    return (int)cudaGetLastError();
}
