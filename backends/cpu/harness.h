// What stands before every C++ kernel: float16 and bfloat16 as storage, and vectors of floats.
//
// scalar_t converts to and from float without a cast, so plain loops work in every dtype. The
// vector types below do the same for LANES elements at once, on any -march: load, compute in
// float32, store (rounded once, to nearest even).
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
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

PORTKERN_INLINE vec load(const float* p) {
  vec v;
  memcpy(&v, p, sizeof(v));
  return v;
}

PORTKERN_INLINE void store(float* p, vec v) { memcpy(p, &v, sizeof(v)); }

PORTKERN_INLINE vec load(const half_t* p) {
  hvec h;
  memcpy(&h, p, sizeof(h));
#if defined(__AVX512F__)
  return as<vec>(_mm512_cvtph_ps(as<__m256i>(h)));
#elif defined(__F16C__)
  return as<vec>(_mm256_cvtph_ps(as<__m128i>(h)));
#elif defined(__ARM_NEON)
  return __builtin_convertvector(as<fp16_vec>(h), vec);
#else
  return half_to_float_bits<vec, uvec>(__builtin_convertvector(h, uvec));
#endif
}

PORTKERN_INLINE void store(half_t* p, vec v) {
#if defined(__AVX512F__)
  const hvec h = as<hvec>(_mm512_cvtps_ph(as<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  const hvec h = as<hvec>(_mm256_cvtps_ph(as<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__ARM_NEON)
  const hvec h = as<hvec>(__builtin_convertvector(v, fp16_vec));
#else
  const hvec h = __builtin_convertvector((float_to_half_bits<vec, uvec>(v)), hvec);
#endif
  memcpy(p, &h, sizeof(h));
}

PORTKERN_INLINE vec load(const bf16_t* p) {
  hvec h;
  memcpy(&h, p, sizeof(h));
  return as<vec>(__builtin_convertvector(h, uvec) << 16);
}

PORTKERN_INLINE void store(bf16_t* p, vec v) {
  const hvec h = __builtin_convertvector((float_to_bfloat16_bits<vec, uvec>(v)), hvec);
  memcpy(p, &h, sizeof(h));
}

// The first n < LANES elements; the other lanes are `fill`.
template <typename T>
PORTKERN_INLINE vec load(const T* p, int64_t n, float fill = 0.0f) {
  T lanes[LANES];
  for (int i = 0; i < LANES; ++i) lanes[i] = fill;
  memcpy(lanes, p, size_t(n) * sizeof(T));
  return load(lanes);
}

template <typename T>
PORTKERN_INLINE void store(T* p, vec v, int64_t n) {
  T lanes[LANES];
  store(lanes, v);
  memcpy(p, lanes, size_t(n) * sizeof(T));
}

// a where it is greater, else b: a NaN in b stays, one in a is dropped.
PORTKERN_INLINE vec max(vec a, vec b) { return a > b ? a : b; }

PORTKERN_INLINE float reduce_add(vec v) {
  float lanes[LANES];
  store(lanes, v);
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

PORTKERN_INLINE float reduce_max(vec v) {
  float lanes[LANES];
  store(lanes, v);
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
  return lanes[0];
}

// e^x within 1.2e-7 of its value: 0 far below, infinity far above, NaN for NaN.
PORTKERN_INLINE vec exp(vec x) {
  const vec low = splat(-104.0f), high = splat(89.0f);
  x = x < low ? low : x;
  x = x > high ? high : x;
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
  // In two steps, because 2^-150 and 2^128 have no float of their own.
  const ivec n = as<ivec>(shifted) - 0x4b400000;
  const ivec half = n >> 1;
  return p * as<vec>((half + 127) << 23) * as<vec>((n - half + 127) << 23);
}

// The normal distribution's integral up to x, within 4e-7 of its value in both tails: erf and
// erfc of float32 come from it as erf(x) = 2 * normal_cdf(x * sqrt(2)) - 1.
PORTKERN_INLINE vec normal_cdf(vec x) {
  const vec t = as<vec>(as<uvec>(x) & 0x7fffffffu);
  const vec q = 1.0f / (1.0f + 0.3f * t);
  vec p = q * 0.0384076119f - 0.169308459f;
  p = p * q + 0.228953688f;
  p = p * q - 0.0768416565f;
  p = p * q + 0.142766514f;
  p = p * q + 0.0945853974f;
  p = p * q + 0.121945366f;
  p = p * q + 0.119484195f;
  p = p * q + 7.37298224e-6f;
  const vec tail = p * exp(-0.5f * t * t);
  const vec zero = {};
  return x > zero ? 1.0f - tail : tail;
}
