#include <portkern/rows.h>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define STREAM_FROM 4194304  // knob: 1048576 4194304 16777216

PORTKERN_INLINE vec gated(vec v) { return v / (1.0f + exp(-v)); }

// Elements from `first` on of a group whose moments are known: what is left of a channel, and those after it.
static void normalise(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, int64_t first,
                      int64_t n, int64_t pixels, const Moments& group, float eps, bool large) {
  const float mean = float(group.mean), scale = 1.0f / sqrtf(float(group.squares / group.count) + eps);
  if (pixels == 1) {
    for (int64_t i = 0; i < n; i += LANES) {
      const int64_t count = n - i < LANES ? n - i : LANES;
      const vec gain = load(weight + first + i, count) * scale;
      store(y + i, gated((load(x + i, count) - mean) * gain + load(bias + first + i, count)), count);
    }
    return;
  }
  int64_t channel = first / pixels, left = pixels - first % pixels;
  for (int64_t i = 0; i < n; ++channel, left = pixels) {
    const int64_t end = n - i < left ? n : i + left;
    const float gain = float(weight[channel]) * scale, more = float(bias[channel]);
    for (; i + LANES <= end; i += LANES) stream(y + i, gated((load(x + i) - mean) * gain + more), large);
    if (i < end) store(y + i, gated((load(x + i, end - i) - mean) * gain + more), end - i);
    i = end;
  }
}

extern "C" int group_norm_silu(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                               int64_t batch, int64_t groups, int64_t channels, int64_t pixels, float eps) {
  const int64_t rows = batch * groups, cols = channels * pixels;
  if (rows == 0 || cols == 0) return 0;
  const bool parallel = rows * cols >= PARALLEL_FROM, large = rows * cols >= STREAM_FROM;
  const Parts parts(rows, cols);
  const int64_t jobs = rows * parts.count;
  Scratch<Moments> known(jobs);
  if (!known.data) return 1;
  const auto finish = [=](int64_t job, const Moments& group) {
    const int64_t at = parts.start(job), own = job / parts.count % groups * channels;
    normalise(x + at, weight + own, bias + own, y + at, parts.first(job), parts.size(job), pixels, group, eps, large);
  };
#pragma omp parallel if (parallel)
  {
#pragma omp for schedule(static)
    for (int64_t job = 0; job < jobs; ++job) {
      known.data[job] = Moments();
      known.data[job].take(x + parts.start(job), parts.size(job));
      if (parts.count == 1) finish(job, known.data[job]);
    }
    if (parts.count > 1) {
#pragma omp for schedule(static)
      for (int64_t job = 0; job < jobs; ++job) finish(job, parts.total(known.data, job));
    }
  }
  return 0;
}
