#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define BLOCK 4096           // knob: 1024 4096 16384

// log(sum of e^x) - x[target] of each row, in one pass over memory: a block's maximum is found
// first, then its powers are added while it is in the nearest cache.

static float block_max(const scalar_t* x, int64_t n) {
  vec m0 = splat(-INFINITY), m1 = m0, m2 = m0, m3 = m0;
  int64_t i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES) {
    m0 = max(load(x + i), m0);
    m1 = max(load(x + i + LANES), m1);
    m2 = max(load(x + i + 2 * LANES), m2);
    m3 = max(load(x + i + 3 * LANES), m3);
  }
  for (; i + LANES <= n; i += LANES) m0 = max(load(x + i), m0);
  if (i < n) m1 = max(load(x + i, n - i, -INFINITY), m1);
  return reduce_max(max(max(m0, m1), max(m2, m3)));
}

static float row_loss(const scalar_t* x, int64_t classes, int64_t target) {
  float top = -INFINITY, sum = 0.0f;
  for (int64_t start = 0; start < classes; start += BLOCK) {
    const int64_t count = classes - start < BLOCK ? classes - start : BLOCK;
    const float higher = fmaxf(top, block_max(x + start, count));
    // As long as all are -infinity, 0 is taken out: -infinity - -infinity would be a NaN.
    const float shift = higher == -INFINITY ? 0.0f : higher;
    sum *= expf(top - shift);
    sum += sum_terms(x + start, count, -INFINITY,
                     [=](vec v, int64_t, int64_t) { return exp(v - shift); });
    top = higher;
  }
  return logf(sum) + (top - float(x[target]));
}

extern "C" int cross_entropy(const scalar_t* logits, const int64_t* target, scalar_t* loss,
                             int64_t rows, int64_t classes) {
#pragma omp parallel for schedule(static) if (rows * classes >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row)
    loss[row] = row_loss(logits + row * classes, classes, target[row]);
  return 0;
}
