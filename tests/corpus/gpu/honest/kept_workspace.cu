// mechanism: partial sums lie in a workspace that is kept between calls and grows
// backend: cuda
// op: sum
constexpr int PARTS = 8;

__device__ float over_warp(float value) {
    for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(~0u, value, d);
    return value;
}

__global__ void sum_parts(const scalar_t* x, float* parts, int64_t reduce, int64_t inner) {
    const int64_t at = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
    const scalar_t* from = x + (at / inner * reduce) * inner + at % inner;
    float total = 0.0f;
    for (int64_t r = part * 32 + threadIdx.x; r < reduce; r += PARTS * 32)
        total += float(from[r * inner]);
    total = over_warp(total);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

__global__ void add_parts(const float* parts, scalar_t* y) {
    float total = threadIdx.x < PARTS ? parts[blockIdx.x * PARTS + threadIdx.x] : 0.0f;
    total = over_warp(total);
    if (threadIdx.x == 0) y[blockIdx.x] = scalar_t(total);
}

extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner,
                   cudaStream_t stream) {
    static float* workspace;
    static int64_t room;
    const int64_t outputs = outer * inner;
    if (outputs == 0) return 0;
    if (room < outputs) {
        cudaFree(workspace);
        room = outputs;
        if (cudaMalloc((void**)&workspace, room * PARTS * sizeof(float))) return 1;
    }
    sum_parts<<<(unsigned)(outputs * PARTS), 32, 0, stream>>>(x, workspace, reduce, inner);
    add_parts<<<(unsigned)outputs, 32, 0, stream>>>(workspace, y);
    return (int)cudaGetLastError();
}
