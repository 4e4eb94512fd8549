// Layer normalisation of a few very wide rows on Hopper. For layernorm.cu, which has what rows of all
// widths need: `scaled`, `block_sum`, and the knob HELD.
#pragma once
#include <portkern/hopper.h>
#include <portkern/rows.h>

// Fewer rows than multiprocessors, each too wide for one of them: every block has a slice of each
// row, in registers while it is in work, and the next row's arrives in shared memory meanwhile.
// Blocks tell each other their slices' moments through global memory.
namespace layernorm_hopper {
constexpr int THREADS = 512, PACKS = 64 / VEC, MOST_BLOCKS = 256;
constexpr int AHEAD = VEC == 4 ? 2 : 1;  // packs of biases on their way
constexpr int KEPT = HELD < PACKS ? HELD : PACKS;  // packs of weights that a thread keeps by it
__device__ float2 moments[2][MOST_BLOCKS];  // mean and sum of squared deviations, of a slice
__device__ unsigned arrived, left;

// Until all blocks have come here as often as this one; they are all running.
__device__ __forceinline__ void meet() {
    __threadfence();
    const unsigned ticket = atomicAdd(&arrived, 1), last = (ticket / gridDim.x + 1) * gridDim.x;
    while ((int)(*(volatile unsigned*)&arrived - last) < 0) {
    }
    __threadfence();
}

// Of a row, by one warp: how far its mean is from `near`, and its scale, by Chan's formula.
__device__ float2 combine(const float2* slices, float near, int64_t packs, int64_t slice, float eps) {
    float2 sums = make_float2(0.0f, 0.0f), told[MOST_BLOCKS / 32];
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int u = 0; u < MOST_BLOCKS / 32; ++u)
        if (lane + u * 32 < gridDim.x) told[u] = __ldcg(slices + lane + u * 32);
#pragma unroll
    for (int u = 0; u < MOST_BLOCKS / 32; ++u) {
        const int b = lane + u * 32;
        if (b >= gridDim.x) continue;
        const float count = (float)(min(slice, packs - b * slice) * VEC), off = told[u].x - near;
        sums.x += count * off;
        sums.y += told[u].y + count * off * off;
    }
    sums = make_float2(lane_reduce<Sum>(sums.x, 32), lane_reduce<Sum>(sums.y, 32));
    const float count = (float)(packs * VEC), off = sums.x / count;
    return make_float2(off, rsqrtf(fmaxf(sums.y / count - off * off, 0.0f) + eps));
}

__global__ __launch_bounds__(THREADS, 1) void layernorm_shared(
    const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
    const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, int64_t rows, int64_t packs,
    int64_t slice, float eps) {
    extern __shared__ __align__(128) unsigned char raw[];
    __shared__ uint64_t full;
    __shared__ float2 partial[2][THREADS / 32];
    __shared__ float2 normal;  // how far the row's mean is from the slice's, and the scale
    const Pack* coming = reinterpret_cast<const Pack*>(raw);
    Pack* kept = reinterpret_cast<Pack*>(raw) + slice;
    const int64_t start = blockIdx.x * slice;
    const int mine = (int)min(slice, packs - start);
    const Pack* weights = reinterpret_cast<const Pack*>(weight) + start;
    const Pack* biases = reinterpret_cast<const Pack*>(bias) + start;
    // Rows pass through the L2; weights and biases, which each of them needs, are to stay there.
    const uint64_t passing = hopper::evict_first(), staying = hopper::evict_last();
    const auto lasting = [&](const Pack* from) {
        const uint4 bits = hopper::load(reinterpret_cast<const uint4*>(from), staying);
        return *reinterpret_cast<const Pack*>(&bits);
    };
    const auto fetch = [&](int64_t row) {
        hopper::expect_bytes(&full, mine * 16);
        hopper::load_bytes(raw, reinterpret_cast<const Pack*>(x) + row * packs + start, mine * 16,
                           &full, passing);
    };
    if (threadIdx.x == 0) {
        hopper::init(&full, 1);
        hopper::fence_barriers();
        fetch(0);
    }
    for (int i = threadIdx.x; i < KEPT * THREADS && i < mine; i += THREADS) kept[i] = weights[i];
    __syncthreads();
    for (int64_t row = 0; row < rows; ++row) {
        Pack v[PACKS];
        float total = 0.0f;
        hopper::wait(&full, row & 1);
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const int i = threadIdx.x + k * THREADS;
            if (i < mine) v[k] = coming[i];
#pragma unroll
            for (int j = 0; j < VEC; ++j) total += i < mine ? float(v[k].at[j]) : 0.0f;
        }
        const float count = (float)(mine * VEC);
        const float mean = block_sum(make_float2(total, 0.0f), partial[0]).x / count;
        if (threadIdx.x == 0 && row + 1 < rows) {
            hopper::fence_async();  // what was read above comes before what is written now
            fetch(row + 1);
        }
        float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                const float off =
                    threadIdx.x + k * THREADS < mine ? float(v[k].at[j]) - mean : 0.0f;
                sums.x += off;
                sums.y += off * off;
            }
        sums = block_sum(sums, partial[1]);
        if (threadIdx.x == 0) {
            const float off = sums.x / count;
            __stcg(&moments[row & 1][blockIdx.x], make_float2(mean + off, sums.y - sums.x * off));
        }
        Pack next[AHEAD];  // biases, on their way meanwhile
#pragma unroll
        for (int k = 0; k < AHEAD; ++k)
            if (threadIdx.x + k * THREADS < mine) next[k] = lasting(biases + threadIdx.x + k * THREADS);
        if (threadIdx.x < 32) {
            if (threadIdx.x == 0) meet();
            __syncwarp();
            const float2 told = combine(moments[row & 1], mean, packs, slice, eps);
            if (threadIdx.x == 0) normal = told;
        }
        __syncthreads();
        Pack* out = reinterpret_cast<Pack*>(y) + row * packs + start;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const int i = threadIdx.x + k * THREADS;
            if (i >= mine) continue;
            float deviation[VEC];
#pragma unroll
            for (int j = 0; j < VEC; ++j) deviation[j] = float(v[k].at[j]) - mean;
            const Pack result =
                scaled(deviation, normal.x, normal.y, k < KEPT ? kept[i] : lasting(weights + i),
                            next[k % AHEAD]);
            if (i + AHEAD * THREADS < mine) next[k % AHEAD] = lasting(biases + i + AHEAD * THREADS);
            hopper::store(reinterpret_cast<uint4*>(out + i), *reinterpret_cast<const uint4*>(&result), passing);
        }
    }
    if (threadIdx.x == 0 && atomicAdd(&left, 1) == gridDim.x - 1) {
        atomicExch(&arrived, 0);  // atomics, as no fence orders this after what others read
        atomicExch(&left, 0);
    }
}

// Whether it did: blocks must all fit at once, and a slice into the registers of one.
bool launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
            int64_t rows, int64_t packs, float eps, cudaStream_t stream) {
    const int most = multiprocessors();
    int64_t slice = (packs + most - 1) / most;
    const int64_t blocks = (packs + slice - 1) / slice;
    if (rows >= most || slice > PACKS * THREADS || blocks > MOST_BLOCKS) return false;
    const int bytes = (int)(slice + KEPT * THREADS) * 16;
    cudaFuncSetAttribute(layernorm_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    void* arguments[] = {&x, &weight, &bias, &y, &rows, &packs, &slice, &eps};
    const cudaError_t told = cudaLaunchCooperativeKernel(
        (void*)layernorm_shared, dim3((unsigned)blocks), dim3(THREADS), arguments, bytes, stream);
    if (told != cudaSuccess) cudaGetLastError();  // or the next kernel's launch would report it
    return told == cudaSuccess;
}
}  // namespace layernorm_hopper
