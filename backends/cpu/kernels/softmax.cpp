#define PARALLEL_FROM 16384  // knob: 4096 16384 65536

static float row_max(const scalar_t* x, int64_t cols) {
  vec m0 = splat(-INFINITY), m1 = m0, m2 = m0, m3 = m0;
  int64_t i = 0;
  for (; i + 4 * LANES <= cols; i += 4 * LANES) {
    m0 = max(load(x + i), m0);
    m1 = max(load(x + i + LANES), m1);
    m2 = max(load(x + i + 2 * LANES), m2);
    m3 = max(load(x + i + 3 * LANES), m3);
  }
  for (; i + LANES <= cols; i += LANES) m0 = max(load(x + i), m0);
  if (i < cols) m1 = max(load(x + i, cols - i, -INFINITY), m1);
  return reduce_max(max(max(m0, m1), max(m2, m3)));
}

// The sum of e^(x - top); float32 outputs keep the terms, halves would round them.
static float exp_sum(const scalar_t* x, scalar_t* y, int64_t cols, float top) {
  constexpr bool keep = sizeof(scalar_t) == sizeof(float);
  vec s0 = {}, s1 = {};
  int64_t i = 0;
  for (; i + 2 * LANES <= cols; i += 2 * LANES) {
    const vec e0 = exp(load(x + i) - top), e1 = exp(load(x + i + LANES) - top);
    if (keep) store(y + i, e0);
    if (keep) store(y + i + LANES, e1);
    s0 += e0;
    s1 += e1;
  }
  for (; i < cols; i += LANES) {
    const int64_t n = cols - i < LANES ? cols - i : LANES;
    const vec e = exp(load(x + i, n, -INFINITY) - top);
    if (keep) store(y + i, e, n);
    s0 += e;
  }
  return reduce_add(s0 + s1);
}

PORTKERN_INLINE vec share(vec x, float top, float scale) {
  return (sizeof(scalar_t) == sizeof(float) ? x : exp(x - top)) * scale;
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row) {
    const scalar_t* in = x + row * cols;
    scalar_t* out = y + row * cols;
    const float top = row_max(in, cols);
    const float scale = 1.0f / exp_sum(in, out, cols, top);
    const scalar_t* from = sizeof(scalar_t) == sizeof(float) ? out : in;
    int64_t i = 0;
    for (; i + LANES <= cols; i += LANES) store(out + i, share(load(from + i), top, scale));
    if (i < cols) store(out + i, share(load(from + i, cols - i), top, scale), cols - i);
  }
  return 0;
}
