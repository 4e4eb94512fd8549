#define PARALLEL_FROM 32768  // knob: 8192 32768 131072

// The greatest that each lane has met, and in which vector of the row. A NaN stays.
struct Best {
  vec value = splat(-INFINITY);
  ivec step = {};

  void take(vec v, int32_t now) {
    const ivec keep = (v <= value) | (value != value);
    value = keep ? value : v;
    step = keep ? step : now - ivec{};
  }
};

// One element against the best so far; lanes are no longer in the order of the row.
static bool precedes(float v, int64_t index, float best, int64_t best_index) {
  if (v == best || (v != v && best != best)) return index < best_index;
  return v > best || v != v;
}

static int64_t row_argmax(const scalar_t* x, int64_t cols) {
  // Two, because a comparison waits for the one before it. Lanes that meet nothing above -infinity
  // say so of vector 0: of such a row the answer is 0.
  Best best[2];
  const int64_t vectors = cols / LANES;
  int64_t i = 0;
  for (; i + 2 <= vectors; i += 2) {
    best[0].take(load(x + i * LANES), int32_t(i));
    best[1].take(load(x + (i + 1) * LANES), int32_t(i + 1));
  }
  for (; i * LANES < cols; ++i) {
    const int64_t left = cols - i * LANES;
    best[0].take(left < LANES ? load(x + i * LANES, left, -INFINITY) : load(x + i * LANES),
                 int32_t(i));
  }
  float most = -INFINITY;
  int64_t index = 0;
  for (int64_t lane = 0; lane < 2 * LANES && lane < cols; ++lane) {
    const Best& one = best[lane / LANES];
    const float value = one.value[lane % LANES];
    const int64_t at = int64_t(one.step[lane % LANES]) * LANES + lane % LANES;
    if (!precedes(value, at, most, index)) continue;
    most = value;
    index = at;
  }
  return index;
}

extern "C" int argmax(const scalar_t* x, int64_t* index, int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row) index[row] = row_argmax(x + row * cols, cols);
  return 0;
}
