#define PARALLEL_FROM 400000  // knob: 100000 400000 1600000
#define ROWS 192              // knob: 96 192 384
#define COLS 512              // knob: 256 512 1024

#include <portkern/few_filters.h>

using namespace product;

// Sums of filters, a row for each, become results with a bias.
struct Results {
  scalar_t* y;
  const scalar_t* bias;
  int64_t f, filter, pixel, plane;

  void put(int64_t row, int64_t col, int64_t rows, int64_t cols, const float* sums,
           int64_t width) const {
    for (int64_t done = 0, run; done < cols; done += run) {
      const int64_t image = (pixel + col + done) / plane, at = (pixel + col + done) % plane;
      run = least(cols - done, plane - at);
      for (int64_t r = 0; r < rows; ++r) {
        scalar_t* to = y + (image * f + filter + row + r) * plane + at;
        const float *from = sums + r * width + done, added = bias[filter + row + r];
        int64_t i = 0;
        for (; i + LANES <= run; i += LANES) store(to + i, load(from + i) + added);
        if (i < run) store(to + i, load(from + i, run - i) + added, run - i);
      }
    }
  }
};

template <class Way>
static int convolve(const Way* way, const Convolution& s, const scalar_t* weight, const Results& all, int64_t f,
                    int64_t pixels, bool wide) {
  const Cut cut(way, 1, f, pixels, wide);
  int failed = 0;
#pragma omp parallel for schedule(dynamic) reduction(| : failed) if (wide)
  for (int64_t job = 0; job < cut.down * cut.across; ++job) {
    Results out = all;
    out.filter = job % cut.down * cut.rows, out.pixel = job / cut.down * cut.cols;
    const int64_t count = least(cut.cols, pixels - out.pixel);
    Patches patches(s, out.pixel, count, Way::DEPTH);
    patches.planes = workspace<float>(patches.room());
    if (patches.planes)
      block<Way>(weight + out.filter * s.depth(), s.depth(), patches, out,
                   least(cut.rows, f - out.filter), count, s.depth());
    failed |= !patches.planes;
    free(patches.planes);
  }
  return failed;
}

extern "C" int conv2d(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                      int64_t n, int64_t c, int64_t h, int64_t w, int64_t f, int64_t kh, int64_t kw,
                      int64_t oh, int64_t ow, int64_t stride, int64_t padding) {
  const Convolution s = Convolution{x, c, h, w, kh, kw, oh, ow, stride, padding}.flat();
  const int64_t pixels = n * oh * ow;
  if (pixels <= 0 || f == 0) return 0;
  const Results out{y, bias, f, 0, 0, oh * ow};
  const bool wide = double(pixels) * double(f) * double(s.depth()) >= PARALLEL_FROM;
  if (are_few(s, f)) return with_few(s, n, f, weight, out, wide);
  return by_fastest([&](auto* way) { return convolve(way, s, weight, out, f, pixels, wide); });
}
