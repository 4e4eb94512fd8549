#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

static float sum_of_squares(const scalar_t* x, int64_t cols) {
  return sum_terms(x, cols, 0.0f, [](vec v, int64_t, int64_t) { return v * v; });
}

extern "C" int rmsnorm(const scalar_t* x, const scalar_t* weight, scalar_t* y, int64_t rows,
                       int64_t cols, float eps) {
  const bool large = rows * cols >= STREAM_FROM;
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row) {
    const scalar_t* in = x + row * cols;
    scalar_t* out = y + row * cols;
    const float scale = 1.0f / sqrtf(sum_of_squares(in, cols) / float(cols) + eps);
    int64_t i = 0;
    for (; i + LANES <= cols; i += LANES)
      stream(out + i, load(in + i) * scale * load(weight + i), large);
    for (; i < cols; ++i) out[i] = float(in[i]) * scale * float(weight[i]);
  }
  return 0;
}
