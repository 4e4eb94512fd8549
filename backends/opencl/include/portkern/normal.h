#ifdef PORTKERN_CPU
#define MAGNITUDE(x) ((x) < 0.0f ? -(x) : (x))  // PoCL's fabs is a call
#else
#define MAGNITUDE(x) fabs(x)
#endif

// The normal distribution's integral up to x, as 0.5 * erfc(t / sqrt(2)) in both tails: erf of a
// vector is a library call per element on a CPU.
inline vec_t normal_cdf(vec_t x) {
  const vec_t t = MAGNITUDE(x), q = 1.0f / (1.0f + 0.3f * t);
  vec_t p = q * 0.0384076119f - 0.169308459f;
  p = p * q + 0.228953688f;
  p = p * q - 0.0768416565f;
  p = p * q + 0.142766514f;
  p = p * q + 0.0945853974f;
  p = p * q + 0.121945366f;
  p = p * q + 0.119484195f;
  p = p * q + 7.37298224e-6f;
  const vec_t tail = p * EXPV(-0.5f * t * t);
  return x > 0.0f ? 1.0f - tail : tail;
}
