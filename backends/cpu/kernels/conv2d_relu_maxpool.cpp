#include <stdlib.h>

#define PARALLEL_FROM 100000  // knob: 30000 100000 300000
#define ROWS 192              // knob: 96 192
#define COLS 512              // knob: 256 512 1024
#define ROOM 131072           // knob: 65536 131072 262144

#include <portkern/convolution.h>

using namespace product;

// A job is a band of one image, or several small images, for some filters: as many rows of the
// convolution as ROOM floats hold, which are pooled before they leave the cache.

// The convolution's sums of a job, a row for each filter.
struct Sums {
  float* at;
  int64_t stride;

  void put(int64_t row, int64_t col, int64_t rows, int64_t cols, const float* sums,
           int64_t width) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < cols; i += LANES) {
        float* to = at + (row + r) * stride + col + i;
        if (i + LANES <= cols) store(to, load(sums + r * width + i));
        else store(to, load(sums + r * width + i, cols - i), cols - i);
      }
  }
};

struct Pool {
  int64_t oh, ow, window, stride;

  int64_t rows(int64_t results) const { return (results - 1) * stride + window; }

  // Rows of results of one filter, whose sums lie `width` apart. Bias and rectifier come last: they
  // do not change which element of a window is the largest.
  void rows_of(const float* sums, float bias, scalar_t* y, float* line, int64_t width,
               int64_t results) const {
    const vec zero = {};
    for (int64_t row = 0; row < results; ++row, sums += stride * width, y += ow) {
      for (int64_t i = 0; i < width; i += LANES) {
        vec most = load(sums + i);
        for (int64_t k = 1; k < window; ++k) most = greater(load(sums + k * width + i), most);
        store(line + i, most);
      }
      // In place: what is written lies before all that is still to be read.
      for (int64_t i = 0; i < width; i += LANES) {
        const vec most = along(line + i, window) + bias;
        store(line + i, most < zero ? zero : most);
      }
      copy_every(stride, line, ow, y);
    }
  }
};

// The jobs: bands of results as high as they fit, and no higher than threads need to have some. Of
// images of few results as many as fill a block: filters are packed for each block anew.
struct Jobs {
  int64_t filters, across, band, down, images, along, sums;

  Jobs(const Convolution& s, const Pool& pool, int64_t n, int64_t f, bool wide) {
    filters = Cut::share(f, ROWS, MR), across = blocks(f, filters);
    const int64_t fit = ROOM / (filters * s.ow), wanted = wide ? 3 * threads() : 1;
    band = least(pool.oh, fit > pool.window ? (fit - pool.window) / pool.stride + 1 : 1);
    // A band computes the rows that it shares with the next, too.
    while (n * across * blocks(pool.oh, band) < wanted && band * pool.stride > 4 * pool.window)
      band = blocks(band, 2);
    down = blocks(pool.oh, band);
    const int64_t image = s.oh * s.ow, many = least(COLS, ROOM / filters) / image;
    images = down > 1 || many < 2 ? 1 : least(many, blocks(n * across, wanted));
    along = blocks(n, images);
    sums = images > 1 ? images * image : pool.rows(band) * s.ow;
  }

  int64_t count() const { return along * down * across; }
};

template <class Way>
static bool convolve(const Convolution& s, const scalar_t* weight, int64_t filters, int64_t pixel,
                     int64_t pixels, const Sums& sums) {
  for (int64_t j = 0; j < pixels; j += Way::WIDE) {
    const int64_t count = least(pixels - j, Way::WIDE);
    Patches patches(s, pixel + j, count, Way::DEPTH);
    patches.planes = workspace<float>(patches.room());
    if (!patches.planes) return false;
    block<Way>(weight, s.depth(), patches, Sums{sums.at + j, sums.stride}, filters, count,
                 s.depth());
    free(patches.planes);
  }
  return true;
}

template <class Way>
static int run(const Way*, const Convolution& s, const Pool& pool, const scalar_t* weight, const scalar_t* bias,
               scalar_t* y, int64_t n, int64_t f) {
  const bool wide = double(n) * s.oh * s.ow * f * s.depth() >= PARALLEL_FROM;
  const Jobs jobs(s, pool, n, f, wide);
  // Vectors are read beyond the last of a row, and of a line under its last window.
  const int64_t line = s.ow + pool.window + 2 * LANES, room = jobs.filters * jobs.sums + 2 * LANES;
  int failed = 0;
#pragma omp parallel if (wide)
  {
    float* const own = workspace<float>(room + line);
#pragma omp for schedule(dynamic) reduction(| : failed)
    for (int64_t job = 0; job < jobs.count(); ++job) {
      failed |= !own;
      if (failed) continue;
      const int64_t filter = job % jobs.across * jobs.filters;
      const int64_t image = job / jobs.across / jobs.down * jobs.images;
      const int64_t oy = job / jobs.across % jobs.down * jobs.band;
      const int64_t filters = least(f - filter, jobs.filters), rows = least(pool.oh - oy, jobs.band);
      const int64_t images = least(n - image, jobs.images);
      const int64_t pixel = (image * s.oh + oy * pool.stride) * s.ow;
      const int64_t pixels = jobs.images > 1 ? images * s.oh * s.ow : pool.rows(rows) * s.ow;
      failed |= !convolve<Way>(s, weight + filter * s.depth(), filters, pixel, pixels,
                                 Sums{own, jobs.sums});
      for (int64_t r = 0; r < filters; ++r)
        for (int64_t i = 0; i < images; ++i)
          pool.rows_of(own + r * jobs.sums + i * s.oh * s.ow, bias[filter + r],
                       y + (((image + i) * f + filter + r) * pool.oh + oy) * pool.ow, own + room,
                       s.ow, rows);
    }
    free(own);
  }
  return failed;
}

extern "C" int conv2d_relu_maxpool(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                                   scalar_t* y, int64_t n, int64_t c, int64_t h, int64_t w,
                                   int64_t f, int64_t kh, int64_t kw, int64_t oh, int64_t ow,
                                   int64_t stride, int64_t padding, int64_t window,
                                   int64_t pool_stride) {
  if (n == 0 || f == 0 || oh <= 0 || ow <= 0) return 0;
  const int64_t high = (h + 2 * padding - kh) / stride + 1;
  const int64_t wide = (w + 2 * padding - kw) / stride + 1;
  const Convolution s{x, c, h, w, kh, kw, high, wide, stride, padding};
  const Pool pool{oh, ow, window, pool_stride};
  return by_fastest([&](auto* way) { return run(way, s, pool, weight, bias, y, n, f); });
}
