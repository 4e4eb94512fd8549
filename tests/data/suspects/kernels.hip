// Kernels of our own in the shape of those that public reports say clang gets wrong for AMD.
#include <hip/hip_runtime.h>

struct Pair { int a; short b[2]; };
union Number { unsigned whole; unsigned short half[2]; unsigned char byte[4]; };
struct Held { Number first; int between; Number second; };

__device__ __noinline__ Number made(unsigned x) {
    Number n;
    n.whole = 0;
    n.half[1] = (unsigned short)x;
    n.byte[0] = (unsigned char)(x >> 8);
    return n;
}

extern "C" {
// What one row of threads put into LDS is read by all of a large group, sweep after sweep.
__global__ __launch_bounds__(1024) void sweeps(const float* x, float* y, int n, int times) {
    __shared__ float kept[64], sums[32];
    const int i = threadIdx.x % 32, j = threadIdx.x / 32;
    for (int k = threadIdx.x; k < n; k += 1024) kept[k] = x[k];
    __syncthreads();
    float last = 0;
    for (int t = 0; t < times; ++t) {
        if (j == 0) {
            float part = 0;
            for (int k = i; k < n; k += 32)
                for (int l = 0; l < k; ++l) part += kept[k] * kept[l];
            sums[i] = part;
        }
        __syncthreads();
        last = 0;
        for (int k = 0; k < 32; ++k) last += sums[k];
        __syncthreads();
        if (threadIdx.x < n) kept[threadIdx.x] = kept[threadIdx.x] * 0.5f + last * 0.001f;
        __syncthreads();
    }
    y[threadIdx.x] = last + kept[threadIdx.x % n];
}
// Structures that are assigned within an expression of several parts.
__global__ void assigned(const int* x, int* y) {
    const int t = threadIdx.x;
    Pair p = {x[t], {1, 2}}, q = {0, {0, 0}}, r = {7, {8, 9}};
    int sum = (q = p, q.b[1] = (short)(r = q, r.a * 3), q.b[1]);
    sum += (p = r, p.b[1] = 5, p.a);
    y[t] = sum + q.b[0] + r.b[1];
}
// Unions within structures, assigned as a whole and read by parts.
__global__ void joined(const unsigned* x, unsigned* y) {
    const int t = threadIdx.x;
    Held h = {}, g = {};
    h.first.whole = x[t];
    g = h;
    g.second = g.first;
    g.first.byte[3] = 1;
    h.second = g.second;
    y[t] = h.second.half[1] + g.first.half[1] * 3u + (unsigned)g.between;
}
__global__ void returned(const unsigned* x, unsigned* y) {
    const int t = threadIdx.x;
    const Number n = made(x[t]), m = made(n.whole);
    y[t] = n.half[1] + m.byte[0] * 65536u + n.byte[0];
}
// A product of 32 bits that is added to 64.
__global__ void numbered(unsigned long long* y) {
    const unsigned long long t = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    y[t] = t * 0x100000001ull + blockIdx.x * (unsigned long long)0xffffffffu;
}
// A loop within a loop, whose bounds are another for each thread.
__global__ void nested(const int* x, int* y) {
    const int t = threadIdx.x;
    int sum = 0;
    for (int i = 0; i < x[t]; ++i) {
        int j = i;
        do {
            sum += j ^ t;
            if (sum > 100000) break;
        } while (++j < x[t]);
        if (i == 5 && (t & 1)) continue;
        sum += 3;
    }
    y[t] = sum;
}
}
