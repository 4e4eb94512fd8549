// cuRAND's generators for kernels. All states are Philox4x32-10 (Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", 2011), with the key from the seed and the counter
// from subsequence and offset. curandStatePhilox4_32_10_t draws a device's numbers; XORWOW and
// MRG32k3a draw other numbers than on a device, of the same distributions, and their subsequences
// do not overlap either. What is not here (Sobol, Poisson, discrete) does not compile.
#pragma once
#include <cstdint>

#include "simt/math.h"
#include "simt/vectors.h"

namespace simt::random {

static inline uint4 philox_round(uint4 counter, uint2 key) {
    const uint64_t a = (uint64_t)0xD2511F53u * counter.x, b = (uint64_t)0xCD9E8D57u * counter.z;
    return {(unsigned)(b >> 32) ^ counter.y ^ key.x, (unsigned)b,
            (unsigned)(a >> 32) ^ counter.w ^ key.y, (unsigned)a};
}
static inline uint4 philox(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; ++round) {
        counter = philox_round(counter, key);
        key.x += 0x9E3779B9u;  // the golden ratio
        key.y += 0xBB67AE85u;  // sqrt(3) - 1
    }
    return counter;
}

// Number `position` of subsequence `sequence`: four numbers to a counter.
struct State {
    uint2 key;
    uint64_t sequence, position, counted;  // `counted`: whose four numbers `drawn` are, plus 1
    uint4 drawn;
    float kept_normal;
    double kept_normal_double;
    bool has_normal, has_normal_double;
};
struct Philox : State {};
struct Xorwow : State {};
struct Mrg32k3a : State {};

static inline void begin(State* s, uint64_t seed, uint64_t sequence, uint64_t offset) {
    *s = State{{(unsigned)seed, (unsigned)(seed >> 32)}, sequence, offset, 0, {}, 0, 0, false,
               false};
}

static inline unsigned draw(State* s) {
    const uint64_t number = s->position / 4, sequence = s->sequence;
    if (s->counted != number + 1) {
        s->drawn = philox({(unsigned)number, (unsigned)(number >> 32), (unsigned)sequence,
                           (unsigned)(sequence >> 32)}, s->key);
        s->counted = number + 1;
    }
    switch (s->position++ % 4) {
        case 0: return s->drawn.x;
        case 1: return s->drawn.y;
        case 2: return s->drawn.z;
        default: return s->drawn.w;
    }
}

// (0, 1]: the middle of one of 2^32 equal parts, which rounds up to 1 at the end
static inline float uniform(unsigned x) { return (float)x * 0x1p-32f + 0x1p-33f; }
// 53 bits of two numbers
static inline double uniform_double(unsigned x, unsigned y) {
    const uint64_t bits = (uint64_t)x ^ ((uint64_t)y << (53 - 32));
    return (double)bits * 0x1p-53 + 0x1p-54;
}

// Box and Muller's two normal numbers from two uniform ones.
static inline float2 normal(unsigned x, unsigned y) {
    const float two_pi = 6.2831855f;
    const float angle = (float)y * (0x1p-32f * two_pi) + 0x1p-33f * two_pi;
    const float radius = ::sqrtf(-2.0f * ::logf(uniform(x)));
    return {::sinf(angle) * radius, ::cosf(angle) * radius};
}
static inline double2 normal_double(uint4 x) {
    const double angle = uniform_double(x.z, x.w) * 2 * 3.141592653589793;
    const double radius = ::sqrt(-2.0 * ::log(uniform_double(x.x, x.y)));
    return {::sin(angle) * radius, ::cos(angle) * radius};
}

static inline uint4 draw4(State* s) {
    const unsigned x = draw(s), y = draw(s), z = draw(s), w = draw(s);
    return {x, y, z, w};
}
static inline float2 next_normal2(State* s) {
    const unsigned x = draw(s), y = draw(s);
    return normal(x, y);
}
static inline float next_normal(State* s) {  // every other one is the last pair's second
    if ((s->has_normal = !s->has_normal)) {
        const float2 pair = next_normal2(s);
        s->kept_normal = pair.y;
        return pair.x;
    }
    return s->kept_normal;
}
static inline double next_normal_double(State* s) {
    if ((s->has_normal_double = !s->has_normal_double)) {
        const double2 pair = normal_double(draw4(s));
        s->kept_normal_double = pair.y;
        return pair.x;
    }
    return s->kept_normal_double;
}

}  // namespace simt::random

typedef ::simt::random::Philox curandStatePhilox4_32_10_t;
typedef ::simt::random::Xorwow curandStateXORWOW_t;
typedef ::simt::random::Mrg32k3a curandStateMRG32k3a_t;
typedef curandStateXORWOW_t curandState_t;
typedef curandStateXORWOW_t curandState;
typedef curandStatePhilox4_32_10_t curandStatePhilox4_32_10;
typedef curandStateXORWOW_t curandStateXORWOW;
typedef curandStateMRG32k3a_t curandStateMRG32k3a;

template <class State>
static inline void curand_init(unsigned long long seed, unsigned long long subsequence,
                               unsigned long long offset, State* state) {
    ::simt::random::begin(state, seed, subsequence, offset);
}
template <class State>
static inline void skipahead(unsigned long long n, State* state) { state->position += n; }
template <class State>
static inline void skipahead_sequence(unsigned long long n, State* state) { state->sequence += n; }

template <class State>
static inline unsigned curand(State* state) { return ::simt::random::draw(state); }
template <class State>
static inline float curand_uniform(State* state) {
    return ::simt::random::uniform(::simt::random::draw(state));
}
// (0, 1]. Philox has the resolution of one number here; the others take two.
static inline double curand_uniform_double(curandStatePhilox4_32_10_t* state) {
    return ((double)::simt::random::draw(state) + 1) * 0x1p-32;
}
template <class State>
static inline double curand_uniform_double(State* state) {
    const unsigned x = ::simt::random::draw(state), y = ::simt::random::draw(state);
    return ::simt::random::uniform_double(x, y);
}
template <class State>
static inline float curand_normal(State* state) { return ::simt::random::next_normal(state); }
template <class State>
static inline float2 curand_normal2(State* state) { return ::simt::random::next_normal2(state); }
template <class State>
static inline double curand_normal_double(State* state) {
    return ::simt::random::next_normal_double(state);
}
template <class State>
static inline double2 curand_normal2_double(State* state) {
    return ::simt::random::normal_double(::simt::random::draw4(state));
}
template <class State>
static inline float curand_log_normal(State* state, float mean, float deviation) {
    return ::expf(mean + deviation * curand_normal(state));
}
template <class State>
static inline double curand_log_normal_double(State* state, double mean, double deviation) {
    return ::exp(mean + deviation * curand_normal_double(state));
}

// ---- four at once, of Philox only

static inline uint4 curand4(curandStatePhilox4_32_10_t* state) {
    return ::simt::random::draw4(state);
}
static inline float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
    const uint4 x = ::simt::random::draw4(state);
    return {::simt::random::uniform(x.x), ::simt::random::uniform(x.y),
            ::simt::random::uniform(x.z), ::simt::random::uniform(x.w)};
}
static inline float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
    const uint4 x = ::simt::random::draw4(state);
    const float2 low = ::simt::random::normal(x.x, x.y), high = ::simt::random::normal(x.z, x.w);
    return {low.x, low.y, high.x, high.y};
}
static inline double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
    const uint4 x = ::simt::random::draw4(state);
    return {::simt::random::uniform_double(x.x, x.y), ::simt::random::uniform_double(x.z, x.w)};
}
