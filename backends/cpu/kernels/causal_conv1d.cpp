// Channels lie along vectors; the taps of a block of channels and the rows that they meet stay in the nearest cache.
#include <portkern/rows.h>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define SPAN 64              // knob: 16 64 256
#define CHANNELS 1024        // knob: 512 1024 2048

extern "C" int causal_conv1d(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                             int64_t batch, int64_t length, int64_t channels, int64_t taps, bool silu) {
  const int64_t wide = (channels + LANES - 1) / LANES * LANES, blocks = (channels + CHANNELS - 1) / CHANNELS;
  const int64_t spans = (length + SPAN - 1) / SPAN, jobs = batch * spans * blocks;
  if (jobs == 0) return 0;
  Scratch<float> known((taps + 1) * wide);  // of each tap the weights of all channels, and the bias
  if (!known.data) return 1;
  for (int64_t c = 0; c < wide; ++c) {
    for (int64_t tap = 0; tap < taps; ++tap)
      known.data[tap * wide + c] = c < channels ? float(weight[c * taps + tap]) : 0.0f;
    known.data[taps * wide + c] = c < channels ? float(bias[c]) : 0.0f;
  }
#pragma omp parallel for schedule(static) if (batch * length * channels >= PARALLEL_FROM)
  for (int64_t job = 0; job < jobs; ++job) {
    const int64_t first = job % blocks * CHANNELS, start = job / blocks % spans * SPAN;
    const int64_t end = length - start < SPAN ? length : start + SPAN;
    const int64_t last = channels - first < CHANNELS ? channels : first + CHANNELS;
    for (int64_t t = start; t < end; ++t) {
      const int64_t row = (job / blocks / spans * length + t) * channels, from = t + 1 < taps ? taps - 1 - t : 0;
      for (int64_t c = first; c < last; c += LANES) {
        const bool whole = last - c >= LANES;
        vec sum = load(known.data + taps * wide + c);
        for (int64_t tap = from; tap < taps; ++tap) {
          const scalar_t* at = x + row - (taps - 1 - tap) * channels + c;
          sum += (whole ? load(at) : load(at, last - c)) * load(known.data + tap * wide + c);
        }
        if (silu) sum = sum / (1.0f + exp(-sum));
        if (whole) store(y + row + c, sum);
        else store(y + row + c, sum, last - c);
      }
    }
  }
  return 0;
}
