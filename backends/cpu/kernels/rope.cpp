#define PARALLEL_FROM 32768  // knob: 8192 32768 131072
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

// One head of one token: (first, second) * (cos + i sin), as complex numbers.
static void turn(const scalar_t* x, const float* cos, const float* sin, scalar_t* y, int64_t half,
                 bool large) {
  int64_t i = 0;
  for (; i + LANES <= half; i += LANES) {
    const vec first = load(x + i), second = load(x + half + i);
    const vec c = load(cos + i), s = load(sin + i);
    stream(y + i, first * c - second * s, large);
    stream(y + half + i, second * c + first * s, large);
  }
  for (; i < half; ++i) {
    const float first = x[i], second = x[half + i];
    y[i] = first * cos[i] - second * sin[i];
    y[half + i] = second * cos[i] + first * sin[i];
  }
}

extern "C" int rope(const scalar_t* x, const float* cos, const float* sin, scalar_t* y,
                    int64_t tokens, int64_t heads, int64_t half) {
  const bool large = tokens * heads * 2 * half >= STREAM_FROM;
#pragma omp parallel for schedule(static) if (tokens * heads * half >= PARALLEL_FROM)
  for (int64_t job = 0; job < tokens * heads; ++job) {
    const int64_t angles = job / heads * half, head = job * 2 * half;
    turn(x + head, cos + angles, sin + angles, y + head, half, large);
  }
  return 0;
}
