// A thread has a channel and OWN of its states; a channel's threads are neighbours, which add what they see. Where
// channels are too few to fill a GPU, parts of a sequence are gone through side by side: first from states of zero, of
// which the ends are kept, then from the states that these give. Of a part nothing is kept but exp(-rate * its steps).
#include <portkern/multiprocessors.h>
#include <portkern/rows.h>

#define BLOCK 128  // knob: 64 128 256
#define LEAST_SPAN 32  // knob: 16 32 64
#define FILL 1024  // knob: 512 1024 2048

constexpr int OWN = 16, MOST_LANES = 32, HELD = 2048;
static_assert(HELD >= OWN * MOST_LANES, "A block has room for b and c of a position");

struct Scan {
    const scalar_t *x, *step, *rate, *b, *c, *skip;
    scalar_t* y;
    float *ends, *steps;  // of each part: the states of all channels, and the sums of their steps
    int64_t length, channels, states, span;
    int parts, lanes, blocks;  // lanes: of a channel; blocks: of a part

    __device__ __forceinline__ int64_t end(int64_t part, int n, int64_t channel) const {
        return (part * lanes * OWN + n) * channels + channel;
    }
};

// Powers of 2, which the hardware has.
__device__ __forceinline__ float exponent(const Scan& all, int64_t channel, int n) {
    return n < all.states ? float(all.rate[channel * all.states + n]) * -1.44269504f : 0.0f;
}

template <bool FIRST>
__global__ __launch_bounds__(BLOCK) void go_through(const Scan all) {
    __shared__ alignas(16) float held[2][HELD];
    const int64_t part = blockIdx.x / all.blocks, sequence = part / all.parts;  // counted through all sequences
    const int64_t place = (int64_t)(blockIdx.x % all.blocks) * BLOCK + threadIdx.x;
    const int64_t wanted = place / all.lanes, channel = min(wanted, all.channels - 1);
    const int lane = (int)(place % all.lanes), wide = all.lanes * OWN, rows = HELD / wide;
    const int64_t begin = part % all.parts * all.span, stop = min(begin + all.span, all.length);
    float exponents[OWN], state[OWN], steps = 0.0f;
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        exponents[j] = exponent(all, channel, lane * OWN + j);
        state[j] = FIRST || all.parts == 1 ? 0.0f : all.ends[all.end(part, lane * OWN + j, channel)];
    }
    const float through = FIRST ? 0.0f : float(all.skip[channel]);
    for (int64_t t0 = begin; t0 < stop; t0 += rows) {
        const int64_t first = (sequence * all.length + t0) * all.states;
        const int here = (int)min((int64_t)rows, stop - t0);
        __syncthreads();
        for (int p = threadIdx.x; p < here * wide; p += BLOCK) {
            const int n = p % wide;
            const int64_t at = first + p / wide * all.states + n;
            held[0][p] = n < all.states ? float(all.b[at]) : 0.0f;
            if (!FIRST) held[1][p] = n < all.states ? float(all.c[at]) : 0.0f;
        }
        __syncthreads();
        for (int r = 0; r < here; ++r) {
            const int64_t at = (sequence * all.length + t0 + r) * all.channels + channel;
            const float step = float(all.step[at]), x = float(all.x[at]), added = step * x;
            const float *b = held[0] + r * wide + lane * OWN, *c = held[1] + r * wide + lane * OWN;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < OWN; ++j) {
                state[j] = fmaf(exp2f(step * exponents[j]), state[j], added * b[j]);
                if (!FIRST) sum = fmaf(state[j], c[j], sum);
            }
            steps += step;
            if (FIRST) continue;
            sum = lane_reduce<Sum>(sum, all.lanes);
            if (lane == 0 && wanted < all.channels) all.y[at] = scalar_t(fmaf(through, x, sum));
        }
    }
    if (!FIRST || wanted >= all.channels) return;
#pragma unroll
    for (int j = 0; j < OWN; ++j) all.ends[all.end(part, lane * OWN + j, channel)] = state[j];
    if (lane == 0) all.steps[part * all.channels + channel] = steps;
}

// The states at the end of each part, from zero, become those at its beginning.
__global__ __launch_bounds__(BLOCK) void carry(const Scan all, int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x, wide = all.lanes * OWN;
    if (i >= count) return;
    const int64_t channel = i % all.channels, sequence = i / all.channels / wide;
    const int n = (int)(i / all.channels % wide);
    const float own = exponent(all, channel, n);
    float state = 0.0f;
    for (int64_t part = sequence * all.parts; part < (sequence + 1) * all.parts; ++part) {
        float& end = all.ends[all.end(part, n, channel)];
        const float from_zero = end;
        end = state;
        state = fmaf(exp2f(own * all.steps[part * all.channels + channel]), state, from_zero);
    }
}

extern "C" int selective_scan(const scalar_t* x, const scalar_t* step, const scalar_t* rate, const scalar_t* b,
                              const scalar_t* c, const scalar_t* skip, scalar_t* y, int64_t batch, int64_t length,
                              int64_t channels, int64_t states, cudaStream_t stream) {
    if (batch * length * channels == 0) return 0;
    int lanes = 1;
    while (lanes * OWN < states) lanes *= 2;
    if (lanes > MOST_LANES) return (int)cudaErrorInvalidValue;
    const int64_t threads = batch * channels * lanes, wanted = (int64_t)multiprocessors() * FILL / threads;
    const int64_t most = (length + LEAST_SPAN - 1) / LEAST_SPAN, tried = max(min(wanted, most), (int64_t)1);
    const int64_t span = (length + tried - 1) / tried, parts = (length + span - 1) / span;
    const int64_t count = parts > 1 ? batch * parts * channels : 0, wide = lanes * OWN;
    Scratch<float> ends(count * (wide + 1), stream);
    if (ends.error) return (int)ends.error;
    const int64_t blocks = (channels * lanes + BLOCK - 1) / BLOCK;
    const Scan all = {x, step, rate, b, c, skip, y, ends.data, ends.data + count * wide, length, channels,
                      states, span, (int)parts, lanes, (int)blocks};
    const unsigned grid = (unsigned)(batch * parts * blocks);
    if (parts > 1) {
        go_through<true><<<grid, BLOCK, 0, stream>>>(all);
        const int64_t carried = batch * channels * wide;
        carry<<<(unsigned)((carried + BLOCK - 1) / BLOCK), BLOCK, 0, stream>>>(all, carried);
    }
    go_through<false><<<grid, BLOCK, 0, stream>>>(all);
    return (int)cudaGetLastError();
}
