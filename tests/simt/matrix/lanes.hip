// AMD's builtins that move values between lanes or work on bits: a line each, a value a lane.
#include <hip/hip_runtime.h>
#include <cstdio>
#include "simt/mfma.h"

#define M(NAME, ...) +1
constexpr int ROWS =
#include "lanes_list.h"
    ;
#undef M

__global__ void all(int* out) {
    const int l = (int)threadIdx.x, v = 100 + l;
    int row = 0;
#define M(NAME, ...) out[64 * row++ + l] = __VA_ARGS__;
#include "lanes_list.h"
#undef M
}

int main() {
    int* out;
    static int host[ROWS * 64];
    if (hipMalloc(&out, sizeof host) != hipSuccess) return 1;
    all<<<1, 64>>>(out);
    if (hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost) != hipSuccess) return 2;
    int row = 0;
#define M(NAME, ...)                                                \
    printf(#NAME);                                                  \
    for (int l = 0; l < 64; ++l) printf(" %d", host[64 * row + l]); \
    printf("\n");                                                   \
    ++row;
#include "lanes_list.h"
}
