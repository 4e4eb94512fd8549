// Channels lie along vectors; a block of them goes through its sequence with all of its states in the nearest cache.
#include <portkern/rows.h>

#define PARALLEL_FROM 4096  // knob: 1024 4096 16384

extern "C" int selective_scan(const scalar_t* x, const scalar_t* step, const scalar_t* rate, const scalar_t* b,
                              const scalar_t* c, const scalar_t* skip, scalar_t* y, int64_t batch, int64_t length,
                              int64_t channels, int64_t states) {
  const int64_t blocks = (channels + LANES - 1) / LANES, wide = blocks * LANES, jobs = batch * blocks;
  if (jobs * length == 0) return 0;
  Scratch<float> rates(states * wide);  // of each state those of all channels
  if (!rates.data) return 1;
  for (int64_t n = 0; n < states; ++n)
    for (int64_t i = 0; i < wide; ++i) rates.data[n * wide + i] = i < channels ? -float(rate[i * states + n]) : 0.0f;
  bool failed = false;
#pragma omp parallel if (jobs * length * states >= PARALLEL_FROM)
  {
    Scratch<float> own(states * LANES);
    if (!own.data) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp for schedule(static)
    for (int64_t job = 0; job < jobs; ++job) {
      if (!own.data) continue;
      const int64_t first = job % blocks * LANES, count = channels - first < LANES ? channels - first : LANES;
      for (int64_t i = 0; i < states * LANES; ++i) own.data[i] = 0.0f;
      const vec through = load(skip + first, count);
      for (int64_t t = job / blocks * length; t < (job / blocks + 1) * length; ++t) {
        const vec given = load(x + t * channels + first, count), time = load(step + t * channels + first, count);
        const vec added = time * given;
        vec sum = through * given;
        for (int64_t n = 0; n < states; ++n) {
          const vec kept = exp(time * load(rates.data + n * wide + first)) * load(own.data + n * LANES);
          const vec state = kept + added * float(b[t * states + n]);
          store(own.data + n * LANES, state);
          sum += state * float(c[t * states + n]);
        }
        store(y + t * channels + first, sum, count);
      }
    }
  }
  return failed ? 1 : 0;
}
