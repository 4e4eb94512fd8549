// What stands before every C++ kernel: float16 and bfloat16 as storage, and vectors of floats.
//
// scalar_t converts to and from float without a cast, so plain loops work in every dtype. The
// vector types below do the same for LANES elements at once, on any -march: load, compute in
// float32, store (rounded once, to nearest even).
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PORTKERN_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
typedef uint16_t hvec __attribute__((vector_size(2 * LANES)));
#if defined(__ARM_NEON)
typedef __fp16 fp16_vec __attribute__((vector_size(2 * LANES)));
#endif

template <typename To, typename From>
PORTKERN_INLINE To as(From from) {
  static_assert(sizeof(To) == sizeof(From), "as<To>(x) keeps the bits, so the sizes must agree");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// One implementation of each conversion serves scalars and vectors: F, U and the masks that a
// comparison of them gives are (float, uint32_t, bool) or (vec, uvec, ivec). No branches, so
// that loops over scalars vectorise too.

template <typename F, typename U>
PORTKERN_INLINE F half_to_float_bits(U h) {
  const U magnitude = h & 0x7fffu;
  const U shifted = magnitude << 13;
  // The product re-biases the exponent and normalises subnormals.
  const U finite = as<U>(as<F>(shifted) * 0x1p112f);
  const U special = shifted | 0x7f800000u;
  return as<F>((magnitude >= 0x7c00u ? special : finite) | ((h & 0x8000u) << 16));
}

template <typename F, typename U>
PORTKERN_INLINE U float_to_half_bits(F f) {
  const U x = as<U>(f), a = x & 0x7fffffffu;
  const U normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  // One ulp of 0.5f is the smallest half: the addition rounds a subnormal.
  const U tiny = as<U>(as<F>(a) + 0.5f) - 0x3f000000u;
  const U nan = ((a >> 13) & 0x3ffu) | 0x7e00u;
  const U large = a > 0x7f800000u ? nan : (a & 0u) + 0x7c00u;
  const U small = a < 0x38800000u ? tiny : normal;
  return (a >= 0x477ff000u ? large : small) | ((x >> 16) & 0x8000u);
}

template <typename F, typename U>
PORTKERN_INLINE U float_to_bfloat16_bits(F f) {
  const U x = as<U>(f);
  const U rounded = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
  const U nan = (x >> 16) | 0x40u;
  return (x & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
}

struct half_t {
  uint16_t bits;
  half_t() = default;
  half_t(float f) : bits(uint16_t(float_to_half_bits<float, uint32_t>(f))) {}
  operator float() const { return half_to_float_bits<float, uint32_t>(bits); }
};

struct bf16_t {
  uint16_t bits;
  bf16_t() = default;
  bf16_t(float f) : bits(uint16_t(float_to_bfloat16_bits<float, uint32_t>(f))) {}
  operator float() const { return as<float>(uint32_t(bits) << 16); }
};

PORTKERN_INLINE vec splat(float f) { return f - vec{}; }

// Compilers find these three instructions on some -march values only.
PORTKERN_INLINE uvec widen(hvec h) {
#if defined(__AVX512F__)
  return as<uvec>(_mm512_cvtepu16_epi32(as<__m256i>(h)));
#elif defined(__AVX2__)
  return as<uvec>(_mm256_cvtepu16_epi32(as<__m128i>(h)));
#else
  return __builtin_convertvector(h, uvec);
#endif
}

PORTKERN_INLINE hvec narrow(uvec u) {
#if defined(__AVX512F__)
  return as<hvec>(_mm512_cvtepi32_epi16(as<__m512i>(u)));
#else
  return __builtin_convertvector(u, hvec);
#endif
}

PORTKERN_INLINE vec to_float(hvec h, half_t) {
#if defined(__AVX512F__)
  return as<vec>(_mm512_cvtph_ps(as<__m256i>(h)));
#elif defined(__F16C__)
  return as<vec>(_mm256_cvtph_ps(as<__m128i>(h)));
#elif defined(__ARM_NEON)
  return __builtin_convertvector(as<fp16_vec>(h), vec);
#else
  return half_to_float_bits<vec, uvec>(widen(h));
#endif
}

PORTKERN_INLINE hvec from_float(vec v, half_t) {
#if defined(__AVX512F__)
  return as<hvec>(_mm512_cvtps_ph(as<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  return as<hvec>(_mm256_cvtps_ph(as<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__ARM_NEON)
  return as<hvec>(__builtin_convertvector(v, fp16_vec));
#else
  return narrow(float_to_half_bits<vec, uvec>(v));
#endif
}

PORTKERN_INLINE vec to_float(hvec h, bf16_t) { return as<vec>(widen(h) << 16); }

#if defined(__AVX512F__)
// Rounded to bfloat16, which are the upper halves of the lanes; in fewer steps than the above: a NaN
// is not rounded, but made a quiet one.
PORTKERN_INLINE __m512i rounded_to_upper_halves(vec v) {
  const __m512i x = as<__m512i>(v);
  const __mmask16 number = _mm512_cmp_ps_mask(as<__m512>(v), as<__m512>(v), _CMP_ORD_Q);
  const __m512i last = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff));
  const __m512i quiet = _mm512_or_si512(x, _mm512_set1_epi32(0x400000));
  return _mm512_mask_add_epi32(quiet, number, x, up);
}
#endif

PORTKERN_INLINE hvec from_float(vec v, bf16_t) {
#if defined(__AVX512F__)
  return narrow(as<uvec>(_mm512_srli_epi32(rounded_to_upper_halves(v), 16)));
#else
  return narrow(float_to_bfloat16_bits<vec, uvec>(v));
#endif
}

PORTKERN_INLINE vec load(const float* p) {
  vec v;
  memcpy(&v, p, sizeof(v));
  return v;
}

PORTKERN_INLINE void store(float* p, vec v) { memcpy(p, &v, sizeof(v)); }

template <typename Half>
PORTKERN_INLINE vec load(const Half* p) {
  hvec h;
  memcpy(&h, p, sizeof(h));
  return to_float(h, Half());
}

template <typename Half>
PORTKERN_INLINE void store(Half* p, vec v) {
  const hvec h = from_float(v, Half());
  memcpy(p, &h, sizeof(h));
}

// Two vectors side by side.
template <typename T>
PORTKERN_INLINE void store(T* p, vec a, vec b) {
  store(p, a);
  store(p + LANES, b);
}

#if defined(__AVX512BW__)
PORTKERN_INLINE void store(bf16_t* p, vec a, vec b) {  // both are narrowed by one move of halves
  alignas(64) static const uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                               23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                               45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  _mm512_storeu_si512(p, _mm512_permutex2var_epi16(rounded_to_upper_halves(a),
                                                   _mm512_load_si512(odd),
                                                   rounded_to_upper_halves(b)));
}
#endif

// Past the caches: the line is not read before it is written. p has to be aligned to the vector.
#if defined(__AVX512F__)
PORTKERN_INLINE void put(float* p, vec v) { _mm512_stream_ps(p, as<__m512>(v)); }
PORTKERN_INLINE void put(void* p, hvec h) { _mm256_stream_si256((__m256i*)p, as<__m256i>(h)); }
#elif defined(__AVX__)
PORTKERN_INLINE void put(float* p, vec v) { _mm256_stream_ps(p, as<__m256>(v)); }
PORTKERN_INLINE void put(void* p, hvec h) { _mm_stream_si128((__m128i*)p, as<__m128i>(h)); }
#elif defined(__x86_64__)
PORTKERN_INLINE void put(float* p, vec v) { _mm_stream_ps(p, as<__m128>(v)); }
PORTKERN_INLINE void put(void* p, hvec h) { _mm_stream_si64((long long*)p, as<long long>(h)); }
#else
PORTKERN_INLINE void put(float* p, vec v) { memcpy(p, &v, sizeof(v)); }
PORTKERN_INLINE void put(void* p, hvec h) { memcpy(p, &h, sizeof(h)); }
#endif

// A store, past the caches where results are `large`, that is do not fit into them. The barrier at
// the end of a parallel loop waits for such stores too.
PORTKERN_INLINE void stream(float* p, vec v, bool large) {
  if (large && uintptr_t(p) % sizeof(v) == 0) put(p, v);
  else store(p, v);
}

template <typename Half>
PORTKERN_INLINE void stream(Half* p, vec v, bool large) {
  const hvec h = from_float(v, Half());
  if (large && uintptr_t(p) % sizeof(h) == 0) put(p, h);
  else memcpy(p, &h, sizeof(h));
}

// The first n < LANES elements; the other lanes of a load are `fill`.
#if defined(__AVX512BW__) && defined(__AVX512VL__)
PORTKERN_INLINE uint16_t first_lanes(int64_t n) { return uint16_t((1u << n) - 1u); }

PORTKERN_INLINE vec load(const float* p, int64_t n, float fill = 0.0f) {
  return as<vec>(_mm512_mask_loadu_ps(as<__m512>(splat(fill)), first_lanes(n), p));
}

PORTKERN_INLINE void store(float* p, vec v, int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), as<__m512>(v));
}

template <typename Half>
PORTKERN_INLINE vec load(const Half* p, int64_t n, float fill = 0.0f) {
  const vec v = to_float(as<hvec>(_mm256_maskz_loadu_epi16(first_lanes(n), p)), Half());
  return as<vec>(_mm512_mask_blend_ps(first_lanes(n), as<__m512>(splat(fill)), as<__m512>(v)));
}

template <typename Half>
PORTKERN_INLINE void store(Half* p, vec v, int64_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), as<__m256i>(from_float(v, Half())));
}
#else
template <typename T>
PORTKERN_INLINE vec load(const T* p, int64_t n, float fill = 0.0f) {
  T lanes[LANES] = {};
  memcpy(lanes, p, size_t(n) * sizeof(T));
  float floats[LANES];
  store(floats, load(lanes));
  for (int64_t i = n; i < LANES; ++i) floats[i] = fill;  // not in lanes: a half would round it
  return load(floats);
}

template <typename T>
PORTKERN_INLINE void store(T* p, vec v, int64_t n) {
  T lanes[LANES];
  store(lanes, v);
  memcpy(p, lanes, size_t(n) * sizeof(T));
}
#endif

// The greater (the less); when either is a NaN, the second.
#if defined(__AVX512F__)  // one instruction, which compilers do not find for vectors
PORTKERN_INLINE vec max(vec a, vec b) { return as<vec>(_mm512_max_ps(as<__m512>(a), as<__m512>(b))); }
PORTKERN_INLINE vec min(vec a, vec b) { return as<vec>(_mm512_min_ps(as<__m512>(a), as<__m512>(b))); }
#elif defined(__AVX__)
PORTKERN_INLINE vec max(vec a, vec b) { return as<vec>(_mm256_max_ps(as<__m256>(a), as<__m256>(b))); }
PORTKERN_INLINE vec min(vec a, vec b) { return as<vec>(_mm256_min_ps(as<__m256>(a), as<__m256>(b))); }
#else
PORTKERN_INLINE vec max(vec a, vec b) { return a > b ? a : b; }
PORTKERN_INLINE vec min(vec a, vec b) { return a < b ? a : b; }
#endif

PORTKERN_INLINE float reduce_add(vec v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(as<__m512>(v));
#else
  float lanes[LANES];
  store(lanes, v);
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
#endif
}

PORTKERN_INLINE float reduce_max(vec v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(as<__m512>(v));
#else
  float lanes[LANES];
  store(lanes, v);
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
  return lanes[0];
#endif
}

// The sum of term(v, i, count) over the elements of x, LANES at a time from index i: count of them
// are x's, the rest `fill`, whose term must be 0. Every 256 vectors are summed on their own and added
// up in double, so that the error does not grow with the number of elements.
template <typename T, typename Term>
PORTKERN_INLINE double sum_terms(const T* x, int64_t n, float fill, Term term) {
  double total = 0.0;
  int64_t i = 0;
  while (i + LANES <= n) {
    const int64_t end = n - i < 256 * LANES ? n : i + 256 * LANES;
    vec s0 = {}, s1 = {}, s2 = {}, s3 = {};
    for (; i + 4 * LANES <= end; i += 4 * LANES) {
      s0 += term(load(x + i), i, LANES);
      s1 += term(load(x + i + LANES), i + LANES, LANES);
      s2 += term(load(x + i + 2 * LANES), i + 2 * LANES, LANES);
      s3 += term(load(x + i + 3 * LANES), i + 3 * LANES, LANES);
    }
    for (; i + LANES <= end; i += LANES) s0 += term(load(x + i), i, LANES);
    total += reduce_add((s0 + s1) + (s2 + s3));
  }
  if (i < n) total += reduce_add(term(load(x + i, n - i, fill), i, n - i));
  return total;
}

// Moves of whole lanes, for vectors of LANES elements of any type.

template <typename V, int... K>
PORTKERN_INLINE V low_lanes(V a, V b, std::integer_sequence<int, K...>) {
  return __builtin_shufflevector(a, b, (K / 2 + K % 2 * LANES)...);
}

template <typename V, int... K>
PORTKERN_INLINE V high_lanes(V a, V b, std::integer_sequence<int, K...>) {
  return __builtin_shufflevector(a, b, (LANES / 2 + K / 2 + K % 2 * LANES)...);
}

template <int STEP, typename V, int... K>
PORTKERN_INLINE V shifted_lanes(V v, std::integer_sequence<int, K...>) {
  return __builtin_shufflevector(V{}, v, (K < STEP ? K : LANES + K - STEP)...);
}

using Lanes = std::make_integer_sequence<int, LANES>;

// a0 b0 a1 b1 ... of the lower and of the upper halves.
template <typename V>
PORTKERN_INLINE V interleave_low(V a, V b) { return low_lanes(a, b, Lanes()); }
template <typename V>
PORTKERN_INLINE V interleave_high(V a, V b) { return high_lanes(a, b, Lanes()); }

// Lane i becomes lane i + STEP; zeros come in.
template <int STEP, typename V>
PORTKERN_INLINE V shift_lanes(V v) { return shifted_lanes<STEP>(v, Lanes()); }

// e^x within 1.2e-7 of its value, for x from -150 to 89.
PORTKERN_INLINE vec exp_within(vec x) {
  // Adding 1.5 * 2^23 leaves the nearest integer of x / ln 2 in the low bits.
  const vec shifted = x * 1.44269504f + 12582912.0f;
  const vec whole = shifted - 12582912.0f;
  // ln 2 in two parts: the first has 10 bits, so that its product is exact.
  const vec r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  vec p = r * 1.38145964e-3f + 8.36871709e-3f;
  p = p * r + 4.16683881e-2f;
  p = p * r + 1.66665206e-1f;
  p = p * r + 4.99999934e-1f;
  p = (p * r) * r + r + 1.0f;
#if defined(__AVX512F__)
  return as<vec>(_mm512_scalef_ps(as<__m512>(p), as<__m512>(whole)));
#else
  // In two steps, because 2^-150 and 2^128 have no float of their own.
  const ivec n = as<ivec>(shifted) - 0x4b400000;
  const ivec half = n >> 1;
  return p * as<vec>((half + 127) << 23) * as<vec>((n - half + 127) << 23);
#endif
}

// e^x of any x: 0 far below, infinity far above, NaN for NaN. What becomes 0 is not computed: a result
// below the normal floats takes Intel's processors a hundred times as long, and -infinity is common.
PORTKERN_INLINE vec exp(vec x) {
  const auto none = x < splat(-104.0f);
  const vec power = exp_within(min(splat(89.0f), none ? vec{} : x));
  return none ? vec{} : power;
}

// 1 / x of numbers from 2^-100 to 2^100, within one unit in the last place; without a division, which
// takes as long as ten products.
PORTKERN_INLINE vec reciprocal(vec x) {
#if defined(__AVX512F__)
  const vec guess = as<vec>(_mm512_rcp14_ps(as<__m512>(x)));
  return guess + guess * (1.0f - x * guess);
#else
  return 1.0f / x;
#endif
}

// The normal distribution's integral up to x, within 4e-7 of its value in both tails: erf and erfc
// of float32 come from it as erf(x) = 2 * normal_cdf(x * sqrt(2)) - 1.
PORTKERN_INLINE vec normal_cdf(vec x) {
  const vec t = min(splat(16.0f), as<vec>(as<uvec>(x) & 0x7fffffffu));  // a NaN stays one
  const vec q = reciprocal(1.0f + 0.3f * t);
  vec p = q * 0.0384076119f - 0.169308459f;
  p = p * q + 0.228953688f;
  p = p * q - 0.0768416565f;
  p = p * q + 0.142766514f;
  p = p * q + 0.0945853974f;
  p = p * q + 0.121945366f;
  p = p * q + 0.119484195f;
  p = p * q + 7.37298224e-6f;
  const vec tail = p * exp_within(-0.5f * t * t);
  const vec zero = {};
  return x > zero ? 1.0f - tail : tail;
}

#if defined(__AVX512F__)
// The same within 1e-4 of its value, for results of 16 bits; in half the steps.
PORTKERN_INLINE vec rough_normal_cdf(vec x) {
  const vec t = min(splat(16.0f), as<vec>(as<uvec>(x) & 0x7fffffffu));
  const vec q = as<vec>(_mm512_rcp14_ps(as<__m512>(1.0f + 0.36f * t)));
  vec p = q * -0.0976200410f + 0.252022472f;
  p = p * q + 0.0374507808f;
  p = p * q + 0.167628200f;
  p = p * q + 0.140348751f;
  p = p * q + 1.73933509e-4f;
  // e^(-t^2 / 2) as a power of 2.
  const vec z = t * t * -0.721347520f;
  const vec whole = as<vec>(_mm512_roundscale_ps(as<__m512>(z), _MM_FROUND_TO_NEAREST_INT));
  const vec f = z - whole;
  vec e = f * 9.5692e-3f + 5.591769e-2f;
  e = e * f + 0.24024771f;
  e = e * f + 0.69312189f;
  e = e * f + 0.99999926f;
  const vec tail = as<vec>(_mm512_scalef_ps(as<__m512>(p * e), as<__m512>(whole)));
  const vec zero = {};
  return x > zero ? 1.0f - tail : tail;
}
#else
PORTKERN_INLINE vec rough_normal_cdf(vec x) { return normal_cdf(x); }
#endif
