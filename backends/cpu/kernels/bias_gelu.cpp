#include <portkern/gelu.h>

#define PARALLEL_FROM 16384  // knob: 4096 16384 65536
#define NARROW 64            // knob: 16 64

// Two vectors at once: the polynomials are chains, each step of which waits for the last.
template <typename Bias>
static void along(const scalar_t* x, const Bias* bias, scalar_t* y, int64_t n) {
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    const vec y0 = gelu(load(x + i) + load(bias + i));
    const vec y1 = gelu(load(x + i + LANES) + load(bias + i + LANES));
    store(y + i, y0, y1);
  }
  for (; i < n; i += LANES) {
    const int64_t count = n - i < LANES ? n - i : LANES;
    store(y + i, gelu(load(x + i, count) + load(bias + i, count)), count);
  }
}

// Narrow rows side by side, beside as many repetitions of the bias.
static void narrow_rows(const scalar_t* x, const scalar_t* bias, scalar_t* y, int64_t rows,
                        int64_t cols) {
  enum { ROOM = 2 * LANES * NARROW };
  const int64_t some = ROOM / cols;
  float repeated[ROOM];
  for (int64_t i = 0; i < cols; ++i) repeated[i] = bias[i];
  for (int64_t i = cols; i < some * cols; ++i) repeated[i] = repeated[i - cols];
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; row += some)
    along(x + row * cols, repeated, y + row * cols, (rows - row < some ? rows - row : some) * cols);
}

extern "C" int bias_gelu(const scalar_t* x, const scalar_t* bias, scalar_t* y, int64_t rows,
                         int64_t cols) {
  if (cols > 0 && cols <= NARROW) {
    narrow_rows(x, bias, y, rows, cols);
    return 0;
  }
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_FROM)
  for (int64_t row = 0; row < rows; ++row) along(x + row * cols, bias, y + row * cols, cols);
  return 0;
}
