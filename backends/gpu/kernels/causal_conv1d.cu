// Depthwise convolution of the last positions. A thread has a pack of channels and RUN positions that follow one
// another, which it and the few before them are loaded for once, all on their way together.
#include <portkern/packs.h>

#define BLOCK 128  // knob: 64 128 256
#define RUN 8  // knob: 4 8 16

struct Tensors {
    const scalar_t *x, *weight, *bias;
    scalar_t* y;
    int64_t length, channels, taps, packs, runs, threads;  // runs: of each sequence
    bool silu;
};

// In 32 bits where that does: in 64, a division is a hundred instructions.
__device__ __forceinline__ int64_t quotient(int64_t a, int64_t b) {
    return (a | b) >> 32 ? a / b : (unsigned)a / (unsigned)b;
}

// Where the exponential overflows, the quotient is the 0 that it should be.
__device__ __forceinline__ scalar_t finished(float sum, bool silu) {
    return scalar_t(silu ? __fdividef(sum, 1.0f + expf(-sum)) : sum);
}

// TAPS taps; 0: any number of them, which read each position again.
template <int TAPS, int V>
__global__ __launch_bounds__(BLOCK) void convolve(const Tensors all) {
    const int64_t thread = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (thread >= all.threads) return;
    const int64_t run = quotient(thread, all.packs), channel = (thread - run * all.packs) * V;
    const int64_t sequence = quotient(run, all.runs), first = (run - sequence * all.runs) * RUN;
    const scalar_t* x = all.x + sequence * all.length * all.channels + channel;
    scalar_t* y = all.y + sequence * all.length * all.channels + channel;
    const Some<V> bias = *reinterpret_cast<const Some<V>*>(all.bias + channel);
    if constexpr (TAPS == 0) {
        for (int64_t t = first; t < min(first + RUN, all.length); ++t) {
            float sums[V];
#pragma unroll
            for (int j = 0; j < V; ++j) sums[j] = float(bias.at[j]);
            for (int64_t tap = max(all.taps - 1 - t, (int64_t)0); tap < all.taps; ++tap) {
                const int64_t from = (t - all.taps + 1 + tap) * all.channels;
                const Some<V> value = *reinterpret_cast<const Some<V>*>(x + from);
#pragma unroll
                for (int j = 0; j < V; ++j)
                    sums[j] = fmaf(float(value.at[j]), float(all.weight[(channel + j) * all.taps + tap]), sums[j]);
            }
            Some<V> result;
#pragma unroll
            for (int j = 0; j < V; ++j) result.at[j] = finished(sums[j], all.silu);
            *reinterpret_cast<Some<V>*>(y + t * all.channels) = result;
        }
    } else {
        constexpr int BACK = TAPS - 1;
        Some<V> values[RUN + BACK], taps[TAPS];  // of V channels, one after another
#pragma unroll
        for (int i = 0; i < RUN + BACK; ++i) {
            const int64_t t = min(max(first + i - BACK, (int64_t)0), all.length - 1);
            values[i] = *reinterpret_cast<const Some<V>*>(x + t * all.channels);
        }
#pragma unroll
        for (int i = 0; i < TAPS; ++i) taps[i] = reinterpret_cast<const Some<V>*>(all.weight + channel * TAPS)[i];
#pragma unroll
        for (int i = 0; i < RUN; ++i) {
            Some<V> result;
#pragma unroll
            for (int j = 0; j < V; ++j) {
                float sum = float(bias.at[j]);
#pragma unroll
                for (int tap = 0; tap < TAPS; ++tap) {
                    const float one = float(taps[(j * TAPS + tap) / V].at[(j * TAPS + tap) % V]);
                    sum = first + i + tap < BACK ? sum : fmaf(float(values[i + tap].at[j]), one, sum);
                }
                result.at[j] = finished(sum, all.silu);
            }
            if (first + i < all.length) *reinterpret_cast<Some<V>*>(y + (first + i) * all.channels) = result;
        }
    }
}

template <int V>
int launch(Tensors all, int64_t batch, cudaStream_t stream) {
    all.packs = all.channels / V, all.runs = (all.length + RUN - 1) / RUN, all.threads = batch * all.runs * all.packs;
    const unsigned blocks = (unsigned)((all.threads + BLOCK - 1) / BLOCK);
    if (all.taps == 4) convolve<4, V><<<blocks, BLOCK, 0, stream>>>(all);
    else if (all.taps == 3) convolve<3, V><<<blocks, BLOCK, 0, stream>>>(all);
    else if (all.taps == 2) convolve<2, V><<<blocks, BLOCK, 0, stream>>>(all);
    else convolve<0, V><<<blocks, BLOCK, 0, stream>>>(all);
    return (int)cudaGetLastError();
}

extern "C" int causal_conv1d(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                             int64_t batch, int64_t length, int64_t channels, int64_t taps, bool silu,
                             cudaStream_t stream) {
    if (batch * length * channels == 0) return 0;
    const Tensors all = {x, weight, bias, y, length, channels, taps, 0, 0, 0, silu};
    const uintptr_t pointers = (uintptr_t)x | (uintptr_t)weight | (uintptr_t)bias | (uintptr_t)y;
    if (pointers % 16 == 0 && channels % VEC == 0) return launch<VEC>(all, batch, stream);
    return launch<1>(all, batch, stream);
}
