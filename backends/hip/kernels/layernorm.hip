// Layer normalisation over the last axis, one block per row. The row is read once and kept in
// registers. Deviations from a first mean give the variance and correct the mean itself, so a mean
// far above the deviation costs no digits.
#define BLOCK 512  // knob: 128 256 512
#define ITEMS 4  // knob: 2 4 8

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

// Sums two values over the block; `partial` is the caller's, as one barrier per use is enough then.
__device__ __forceinline__ float2 block_sum(float2 value, float2* partial) {
    for (int d = warpSize / 2; d > 0; d /= 2) {
        value.x += __shfl_xor(value.x, d);
        value.y += __shfl_xor(value.y, d);
    }
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = value;
    __syncthreads();
    value = partial[0];
    for (int w = 1; w < blockDim.x / warpSize; ++w) {
        value.x += partial[w].x;
        value.y += partial[w].y;
    }
    return value;
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
    constexpr int PACKS = ITEMS * VEC / V;
    __shared__ float2 partial[2][BLOCK / 32];  // enough for the narrowest wave
    const int packs = (int)cols / V;
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x + blockIdx.x * cols);
    float v[PACKS][V];
    float total = 0.0f;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const int i = threadIdx.x + k * blockDim.x;
        Pack<V> values;
        if (i < packs) values = in[i];
#pragma unroll
        for (int j = 0; j < V; ++j) {
            v[k][j] = i < packs ? float(values.at[j]) : 0.0f;
            total += v[k][j];
        }
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
    __shared__ float2 partial[2][BLOCK / 32];  // enough for the narrowest wave
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

template <int V>
int launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
           int64_t rows, int64_t cols, float eps, hipStream_t stream) {
    constexpr int64_t share = ITEMS * VEC / V;  // packs per thread
    const int64_t threads = (cols / V + share - 1) / share;
    if (threads <= BLOCK)
        layernorm_row<V><<<(unsigned)rows, (unsigned)(threads + 63) / 64 * 64, 0, stream>>>(
            x, weight, bias, y, cols, eps);
    else
        layernorm_wide<V><<<(unsigned)rows, BLOCK, 0, stream>>>(x, weight, bias, y, cols, eps);
    return (int)hipGetLastError();
}

extern "C" int layernorm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                         scalar_t* y, int64_t rows, int64_t cols, float eps, hipStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const uintptr_t pointers = (uintptr_t)x | (uintptr_t)weight | (uintptr_t)bias | (uintptr_t)y;
    if (pointers % 16 == 0 && cols % VEC == 0)
        return launch<VEC>(x, weight, bias, y, rows, cols, eps, stream);
    return launch<1>(x, weight, bias, y, rows, cols, eps, stream);
}
