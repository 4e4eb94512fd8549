// Of few rows of x, each row of the weight is unpacked where it is used; of more, all of the weight is, once.
#define PARALLEL_FROM 400000  // knob: 100000 400000 1600000
#define ROWS 192              // knob: 96 192 384
#define COLS 512              // knob: 256 512 1024
#define FEW 8                 // knob: 4 8 16
#include <portkern/linear.h>
#include <portkern/rows.h>

struct Packed {
  const uint8_t* bytes;
  const scalar_t *scale, *low;
  int64_t groups, size;  // bytes of a group

  template <typename T>
  void unpack(int64_t row, T* to) const {
    for (int64_t group = row * groups; group < (row + 1) * groups; ++group) {
      const float step = scale[group], first = low[group];
      const uint8_t* from = bytes + group * size;
      for (int64_t i = 0; i < size; ++i, to += 2)
        to[0] = float(from[i] & 15) * step + first, to[1] = float(from[i] >> 4) * step + first;
    }
  }
};

static float dot(const float* a, const float* b, int64_t n) {
  vec sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    sums[0] += load(a + i) * load(b + i);
    sums[1] += load(a + i + LANES) * load(b + i + LANES);
  }
  for (; i < n; i += LANES) {
    const int64_t count = n - i < LANES ? n - i : LANES;
    sums[0] += load(a + i, count) * load(b + i, count);
  }
  return reduce_add(sums[0] + sums[1]);
}

static int by_rows(const scalar_t* x, const Packed& weight, scalar_t* y, int64_t m, int64_t n, int64_t k) {
  Scratch<float> given(m * k);
  if (!given.data) return 1;
  for (int64_t i = 0; i < m * k; ++i) given.data[i] = x[i];
  bool failed = false;
#pragma omp parallel if (m * n * k >= PARALLEL_FROM)
  {
    Scratch<float> row(k);
    if (!row.data) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp for schedule(static)
    for (int64_t j = 0; j < n; ++j) {
      if (!row.data) continue;
      weight.unpack(j, row.data);
      for (int64_t i = 0; i < m; ++i) y[i * n + j] = dot(given.data + i * k, row.data, k);
    }
  }
  return failed ? 1 : 0;
}

extern "C" int int4_linear(const scalar_t* x, const uint8_t* packed, const scalar_t* scale, const scalar_t* low,
                           scalar_t* y, int64_t m, int64_t n, int64_t groups, int64_t bytes, int64_t k) {
  if (m == 0 || n == 0) return 0;
  const Packed weight{packed, scale, low, groups, bytes};
  if (m <= FEW) return by_rows(x, weight, y, m, n, k);
  Scratch<scalar_t> whole(n * k);
  if (!whole.data) return 1;
#pragma omp parallel for schedule(static) if (m * n * k >= PARALLEL_FROM)
  for (int64_t j = 0; j < n; ++j) weight.unpack(j, whole.data + j * k);
  return product::apply_layer({x, whole.data, nullptr, y, m, n, k});
}
