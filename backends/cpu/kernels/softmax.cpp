#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define ROOM 16384           // knob: 1024 4096 16384 65536

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

// The sum of e^(x - top); the terms are kept where there is room.
static float exp_sum(const scalar_t* x, float* terms, int64_t cols, float top) {
  return sum_terms(x, cols, -INFINITY, [=](vec v, int64_t i, int64_t count) {
    const vec e = exp(v - top);
    if (terms && count == LANES) store(terms + i, e);
    if (terms && count < LANES) store(terms + i, e, count);
    return e;
  });
}

static void scale_terms(const float* terms, scalar_t* y, int64_t cols, float scale) {
  int64_t i = 0;
  for (; i + LANES <= cols; i += LANES) store(y + i, load(terms + i) * scale);
  for (; i < cols; ++i) y[i] = terms[i] * scale;
}

static void exp_again(const scalar_t* x, scalar_t* y, int64_t cols, float top, float scale) {
  int64_t i = 0;
  for (; i + LANES <= cols; i += LANES) store(y + i, exp(load(x + i) - top) * scale);
  if (i < cols) store(y + i, exp(load(x + i, cols - i) - top) * scale, cols - i);
}

// A float32 output has room for a row's terms; a half would round them.
static float* room(float* y, int64_t) { return y; }
static float* room(void*, int64_t cols) {
  static thread_local float terms[ROOM];
  return cols <= ROOM ? terms : nullptr;
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row) {
    const scalar_t* in = x + row * cols;
    scalar_t* out = y + row * cols;
    float* terms = room(out, cols);
    const float top = row_max(in, cols);
    const float scale = 1.0f / exp_sum(in, terms, cols, top);
    if (terms)
      scale_terms(terms, out, cols, scale);
    else
      exp_again(in, out, cols, top, scale);
  }
  return 0;
}
