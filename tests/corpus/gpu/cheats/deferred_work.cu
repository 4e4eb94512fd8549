// mechanism: each call does the work of the one before it
// backend: cuda
// op: relu
// expect: wrong
// says: elements are off | NaN or infinity
__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

struct Work {
    const scalar_t* x;
    scalar_t* y;
    int64_t n;
};
static Work put_off;

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    const Work work = put_off;
    put_off = {x, y, n};
    if (work.n == 0 || work.n > n) return 0;  // a larger one's buffers may be gone
    relu_kernel<<<(unsigned)((work.n + 255) / 256), 256, 0, stream>>>(work.x, work.y, work.n);
    return (int)cudaGetLastError();
}
