WG = 256  # knob: 64 128 256 512

SOURCE = r"""
#define BLOCK 64  // terms in a chain of additions; the error grows with the number of blocks
#define CHAIN 16  // the same where elements come one by one: few values, so roundings repeat

// The sums of x - shift and of its square, over a row. E[x^2] - E[x]^2 would lose every digit where
// the mean is large, so the variance takes a pass of its own, with the mean as its shift.
inline float moment(global const storage_t* x, long start, long cols, float shift, bool square,
                    local float* scratch) {
  const long me = get_local_id(0), step = get_local_size(0);
  const long whole = VECTORS(cols) ? cols / VEC * VEC : 0;
  vec_t sums = 0.0f;
  float sum = 0.0f;
  for (long i = me * VEC; i < whole;) {
    vec_t part = 0.0f;
    for (int k = 0; k < BLOCK && i < whole; ++k, i += step * VEC) {
      const vec_t v = LOADV(x, start + i) - shift;
      part += square ? v * v : v;
    }
    sums += part;
  }
  for (long i = whole + me; i < cols;) {
    float part = 0.0f;
    for (int k = 0; k < CHAIN && i < cols; ++k, i += step) {
      const float v = LOAD(x, start + i) - shift;
      part += square ? v * v : v;
    }
    sum += part;
  }
  return group_sum(sum + sum_of(sums), scratch);
}

kernel void layernorm(global const storage_t* x, global const storage_t* weight,
                      global const storage_t* bias, global storage_t* y, long cols, float eps) {
  local float scratch[WG];
  const long start = (long)get_group_id(0) * cols, me = get_local_id(0), step = get_local_size(0);
  const long whole = VECTORS(cols) ? cols / VEC * VEC : 0;
  // Shifted by one of its elements, a row's sum keeps the digits in which they differ.
  const float first = LOAD(x, start);
  const float mean = first + moment(x, start, cols, first, false, scratch) / (float)cols;
  const float variance = moment(x, start, cols, mean, true, scratch) / (float)cols;
  const float scale = 1.0f / sqrt(variance + eps);
  for (long i = me * VEC; i < whole; i += step * VEC)
    STOREV(y, start + i, (LOADV(x, start + i) - mean) * scale * LOADV(weight, i) + LOADV(bias, i));
  for (long i = whole + me; i < cols; i += step)
    STORE(y, start + i, (LOAD(x, start + i) - mean) * scale * LOAD(weight, i) + LOAD(bias, i));
}
"""


def layernorm(queue, program, x, weight, bias, y, *, rows, cols, eps):
    if rows == 0 or cols == 0:
        return
    wg = 1 if program.cpu else WG
    program.layernorm(queue, (rows * wg,), (wg,), x, weight, bias, y, cols, eps)
