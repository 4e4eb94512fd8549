#define PARALLEL_FROM 16384  // knob: 4096 16384 65536

static float sum_of_squares(const scalar_t* x, int64_t cols) {
  vec s[4] = {};
  int64_t i = 0;
  for (; i + 4 * LANES <= cols; i += 4 * LANES)
    for (int k = 0; k < 4; ++k) {
      const vec v = load(x + i + k * LANES);
      s[k] += v * v;
    }
  for (; i < cols; i += LANES) {
    const vec v = load(x + i, cols - i < LANES ? cols - i : LANES);
    s[0] += v * v;
  }
  return reduce_add((s[0] + s[1]) + (s[2] + s[3]));
}

extern "C" int rmsnorm(const scalar_t* x, const scalar_t* weight, scalar_t* y, int64_t rows,
                       int64_t cols, float eps) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row) {
    const scalar_t* in = x + row * cols;
    scalar_t* out = y + row * cols;
    const float scale = 1.0f / sqrtf(sum_of_squares(in, cols) / float(cols) + eps);
    int64_t i = 0;
    for (; i + LANES <= cols; i += LANES) store(out + i, load(in + i) * scale * load(weight + i));
    for (; i < cols; ++i) out[i] = float(in[i]) * scale * float(weight[i]);
  }
  return 0;
}
