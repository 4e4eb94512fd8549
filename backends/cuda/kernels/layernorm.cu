// Layer normalisation over the last axis, one block per row. The row is read once and kept in
// registers. Deviations from a first mean give the variance and correct the mean itself, so a mean
// far above the deviation costs no digits. On Hopper, a few very wide rows are shared by all blocks.
#define BLOCK 256  // knob: 128 256 512
#define ITEMS 32  // knob: 16 32 64
#define SHARED_FROM 100  // knob: 50 100 400
#define HELD 12  // knob: 0 6 12
#ifdef PORTKERN_HOPPER
#include <portkern/hopper.h>
#endif

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

__device__ __forceinline__ float2 warp_sum(float2 value) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        value.x += __shfl_xor_sync(~0u, value.x, d);
        value.y += __shfl_xor_sync(~0u, value.y, d);
    }
    return value;
}

// Sums two values over the block; `partial` is the caller's, as one barrier per use is enough then.
__device__ __forceinline__ float2 block_sum(float2 value, float2* partial) {
    const int lane = threadIdx.x % 32;
    value = warp_sum(value);
    if (lane == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_sum(lane < blockDim.x / 32 ? partial[lane] : make_float2(0.0f, 0.0f));
}

template <int V>
__device__ __forceinline__ Pack<V> scaled(const float (&deviation)[V], float shift, float scale,
                                          Pack<V> weight, Pack<V> bias) {
    Pack<V> result;
#pragma unroll
    for (int j = 0; j < V; ++j)
        result.at[j] = scalar_t((deviation[j] - shift) * scale * float(weight.at[j]) + float(bias.at[j]));
    return result;
}

template <int V>
__global__ __launch_bounds__(BLOCK) void layernorm_row(
    const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
    const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, int64_t cols, float eps) {
    constexpr int PACKS = ITEMS / V;
    __shared__ float2 partial[2][BLOCK / 32];
    const int packs = (int)cols / V;
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x + blockIdx.x * cols);
    Pack<V> values[PACKS];
    float v[PACKS][V];
    float total = 0.0f;
#pragma unroll
    for (int k = 0; k < PACKS; ++k)  // all are on their way before the first is looked at
        if (threadIdx.x + k * blockDim.x < packs) values[k] = in[threadIdx.x + k * blockDim.x];
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
#pragma unroll
        for (int j = 0; j < V; ++j) {
            const bool inside = threadIdx.x + k * blockDim.x < packs;
            total += v[k][j] = inside ? float(values[k].at[j]) : 0.0f;
        }
    const float mean = block_sum(make_float2(total, 0.0f), partial[0]).x / cols;
    float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
#pragma unroll
        for (int j = 0; j < V; ++j) {
            v[k][j] = threadIdx.x + k * blockDim.x < packs ? v[k][j] - mean : 0.0f;
            sums.x += v[k][j];
            sums.y += v[k][j] * v[k][j];
        }
    sums = block_sum(sums, partial[1]);
    const float shift = sums.x / cols;
    const float scale = rsqrtf(fmaxf(sums.y / cols - shift * shift, 0.0f) + eps);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= packs) continue;
        reinterpret_cast<Pack<V>*>(y + blockIdx.x * cols)[i] =
            scaled<V>(v[k], shift, scale, reinterpret_cast<const Pack<V>*>(weight)[i],
                      reinterpret_cast<const Pack<V>*>(bias)[i]);
    }
}

// A row too wide for the registers is read three times; the last two find it in L2.
template <int V>
__global__ __launch_bounds__(BLOCK) void layernorm_wide(
    const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
    const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, int64_t cols, float eps) {
    __shared__ float2 partial[2][BLOCK / 32];
    const int64_t packs = cols / V;
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x + blockIdx.x * cols);
    float2 sums = make_float2(0.0f, 0.0f);
    for (int64_t i = threadIdx.x; i < packs; i += BLOCK) {
        const Pack<V> values = in[i];
#pragma unroll
        for (int j = 0; j < V; ++j) sums.x += float(values.at[j]);
    }
    const float mean = block_sum(sums, partial[0]).x / cols;
    sums = make_float2(0.0f, 0.0f);
    for (int64_t i = threadIdx.x; i < packs; i += BLOCK) {
        const Pack<V> values = in[i];
#pragma unroll
        for (int j = 0; j < V; ++j) {
            const float deviation = float(values.at[j]) - mean;
            sums.x += deviation;
            sums.y += deviation * deviation;
        }
    }
    sums = block_sum(sums, partial[1]);
    const float shift = sums.x / cols;
    const float scale = rsqrtf(fmaxf(sums.y / cols - shift * shift, 0.0f) + eps);
#pragma unroll 1  // more at once would not fit the registers of three blocks
    for (int64_t i = threadIdx.x; i < packs; i += BLOCK) {
        const Pack<V> values = in[i];
        float deviation[V];
#pragma unroll
        for (int j = 0; j < V; ++j) deviation[j] = float(values.at[j]) - mean;
        reinterpret_cast<Pack<V>*>(y + blockIdx.x * cols)[i] =
            scaled<V>(deviation, shift, scale, reinterpret_cast<const Pack<V>*>(weight)[i],
                      reinterpret_cast<const Pack<V>*>(bias)[i]);
    }
}

#ifdef PORTKERN_HOPPER
// Fewer rows than multiprocessors, each too wide for one of them: every block has a slice of each
// row, in registers while it is in work, and the next row's arrives in shared memory meanwhile.
// Blocks tell each other their slices' moments through global memory.
namespace shared_rows {
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
    sums = warp_sum(sums);
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
    const Pack<VEC>* coming = reinterpret_cast<const Pack<VEC>*>(raw);
    Pack<VEC>* kept = reinterpret_cast<Pack<VEC>*>(raw) + slice;
    const int64_t start = blockIdx.x * slice;
    const int mine = (int)min(slice, packs - start);
    const Pack<VEC>* weights = reinterpret_cast<const Pack<VEC>*>(weight) + start;
    const Pack<VEC>* biases = reinterpret_cast<const Pack<VEC>*>(bias) + start;
    // Rows pass through the L2; weights and biases, which each of them needs, are to stay there.
    const uint64_t passing = hopper::evict_first(), staying = hopper::evict_last();
    const auto lasting = [&](const Pack<VEC>* from) {
        const uint4 bits = hopper::load(reinterpret_cast<const uint4*>(from), staying);
        return *reinterpret_cast<const Pack<VEC>*>(&bits);
    };
    const auto fetch = [&](int64_t row) {
        hopper::expect_bytes(&full, mine * 16);
        hopper::load_bytes(raw, reinterpret_cast<const Pack<VEC>*>(x) + row * packs + start, mine * 16,
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
        Pack<VEC> v[PACKS];
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
        Pack<VEC> next[AHEAD];  // biases, on their way meanwhile
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
        Pack<VEC>* out = reinterpret_cast<Pack<VEC>*>(y) + row * packs + start;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const int i = threadIdx.x + k * THREADS;
            if (i >= mine) continue;
            float deviation[VEC];
#pragma unroll
            for (int j = 0; j < VEC; ++j) deviation[j] = float(v[k].at[j]) - mean;
            const Pack<VEC> result =
                scaled<VEC>(deviation, normal.x, normal.y, k < KEPT ? kept[i] : lasting(weights + i),
                            next[k % AHEAD]);
            if (i + AHEAD * THREADS < mine) next[k % AHEAD] = lasting(biases + i + AHEAD * THREADS);
            hopper::store(reinterpret_cast<uint4*>(out + i), *reinterpret_cast<const uint4*>(&result), passing);
        }
    }
    if (threadIdx.x == 0 && atomicAdd(&left, 1) == gridDim.x - 1) arrived = left = 0;
}

// Whether it did: blocks must all fit at once, and a slice into the registers of one.
bool launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
            int64_t rows, int64_t packs, float eps, cudaStream_t stream) {
    int device = 0, multiprocessors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    int64_t slice = (packs + multiprocessors - 1) / multiprocessors;
    const int64_t blocks = (packs + slice - 1) / slice;
    if (rows >= multiprocessors || slice > PACKS * THREADS || blocks > MOST_BLOCKS) return false;
    const int bytes = (int)(slice + KEPT * THREADS) * 16;
    cudaFuncSetAttribute(layernorm_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    void* arguments[] = {&x, &weight, &bias, &y, &rows, &packs, &slice, &eps};
    const cudaError_t told = cudaLaunchCooperativeKernel(
        (void*)layernorm_shared, dim3((unsigned)blocks), dim3(THREADS), arguments, bytes, stream);
    if (told != cudaSuccess) cudaGetLastError();  // or the next kernel's launch would report it
    return told == cudaSuccess;
}
}  // namespace shared_rows
#endif

template <int V>
int launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
           int64_t rows, int64_t cols, float eps, cudaStream_t stream) {
    constexpr int64_t share = ITEMS / V;  // packs per thread
    const int64_t threads = (cols / V + share - 1) / share;
    if (threads <= BLOCK)
        layernorm_row<V><<<(unsigned)rows, (unsigned)(threads + 31) / 32 * 32, 0, stream>>>(
            x, weight, bias, y, cols, eps);
    else {
#ifdef PORTKERN_HOPPER
        if (V == VEC && cols >= SHARED_FROM * 1000 &&
            shared_rows::launch(x, weight, bias, y, rows, cols / VEC, eps, stream))
            return 0;
#endif
        layernorm_wide<V><<<(unsigned)rows, BLOCK, 0, stream>>>(x, weight, bias, y, cols, eps);
    }
    return (int)cudaGetLastError();
}

extern "C" int layernorm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                         scalar_t* y, int64_t rows, int64_t cols, float eps, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const uintptr_t pointers = (uintptr_t)x | (uintptr_t)weight | (uintptr_t)bias | (uintptr_t)y;
    if (pointers % 16 == 0 && cols % VEC == 0)
        return launch<VEC>(x, weight, bias, y, rows, cols, eps, stream);
    return launch<1>(x, weight, bias, y, rows, cols, eps, stream);
}
