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

inline vec_t gelu(vec_t x) {
  return x < -15.0f ? (vec_t)(0.0f) : x * normal_cdf(x);  // -infinity * 0 would be NaN
}

// Local rows are rows of x; along a row work-items make a vector each, then those `step` later.
kernel void bias_gelu(global const storage_t* x, global const storage_t* bias, global storage_t* y,
                      long rows, long cols) {
  const long row = (long)get_group_id(0) * get_local_size(1) + get_local_id(1);
  if (row >= rows) return;
  const long start = row * cols, step = get_local_size(0) * VEC;
  for (long i = get_local_id(0) * VEC; i < cols; i += step) {
    const vec_t sum = LOADROW(x, start, i, cols, 0.0f) + LOADROW(bias, 0, i, cols, 0.0f);
    STOREROW(y, start, i, cols, gelu(sum));
  }
}
"""


def bias_gelu(queue, program, x, bias, y, *, rows, cols):
    if rows == 0 or cols == 0:
        return
    chunks = int(-(-cols // program.vec))
    across = min(WG, 1 << (chunks - 1).bit_length())
    down = WG // across
    size = (-(-rows // down) * across, down)
    program.bias_gelu(queue, size, (across, down), x, bias, y, rows, cols)
