WG = 256  # knob: 64 128 256 512

SOURCE = r"""
// The normal distribution's integral up to x, as 0.5 * erfc(t / sqrt(2)) in both tails: erf of a
// vector is a library call per element on a CPU.
inline vec_t normal_cdf(vec_t x) {
  const vec_t t = fabs(x), q = 1.0f / (1.0f + 0.3f * t);
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

inline vec_t gelu_of(vec_t x) {
  return x < -15.0f ? (vec_t)(0.0f) : x * normal_cdf(x);  // -infinity * 0 would be NaN
}

kernel void gelu(global const storage_t* x, global storage_t* y, long n) {
  const long i = (long)get_global_id(0) * VEC;
  if (i + VEC <= n) {
    STOREV(y, i, gelu_of(LOADV(x, i)));
  } else {
    for (long j = i; j < n; ++j) STORE(y, j, gelu_of((vec_t)(LOAD(x, j))).s0);
  }
}
"""


def gelu(queue, program, x, y, *, n):
    if n == 0:
        return
    queue = program.nearby(queue, 4 * n)
    groups = -(-n // (WG * program.vec))
    program.gelu(queue, (groups * WG,), (WG,), x, y, n)
