#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

// Two passes, with the mean as the second one's shift: the difference of E[x^2] and E[x]^2 would
// lose every digit where the mean is large. The row stays in cache.
static float sum_of(const scalar_t* x, int64_t cols, float shift) {
  return sum_terms(x, cols, shift, [=](vec v, int64_t, int64_t) { return v - shift; });
}

static float sum_of_squares(const scalar_t* x, int64_t cols, float shift) {
  return sum_terms(x, cols, shift, [=](vec v, int64_t, int64_t) {
    v -= shift;
    return v * v;
  });
}

extern "C" int layernorm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                         scalar_t* y, int64_t rows, int64_t cols, float eps) {
  const bool large = rows * cols >= STREAM_FROM;
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row) {
    const scalar_t* in = x + row * cols;
    scalar_t* out = y + row * cols;
    // Shifted by an element of the row, the sum keeps the digits in which the elements differ.
    const float first = cols > 0 ? float(in[0]) : 0.0f;
    const float mean = first + sum_of(in, cols, first) / float(cols);
    const float scale = 1.0f / sqrtf(sum_of_squares(in, cols, mean) / float(cols) + eps);
    int64_t i = 0;
    for (; i + LANES <= cols; i += LANES)
      stream(out + i, (load(in + i) - mean) * scale * load(weight + i) + load(bias + i), large);
    for (; i < cols; ++i)
      out[i] = (float(in[i]) - mean) * scale * float(weight[i]) + float(bias[i]);
  }
  return 0;
}
