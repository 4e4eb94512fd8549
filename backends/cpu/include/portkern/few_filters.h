// A convolution with a few filters: their sums stay in registers while they meet each element where
// planes have it. A panel of such elements would be written and read for each filter once.
#pragma once
#include <portkern/convolution.h>

namespace product {

// The most filters that are few: of more, a panel that was written once is read often enough.
enum { FEW = 6 };

// Results of some rows lie in sums as what they see lies in planes: what stands between the rows is
// added too, and left there.
template <int F>
struct FewFilters {
  // Vectors of sums of each filter, for as many registers as a tile has.
  static constexpr int FIT = MR * NV / F, V = FIT < 2 ? 2 : FIT < 8 ? FIT : 8;
  // Positions of a job, whose sums and planes stay near.
  static constexpr int64_t POSITIONS = 2048;

  const Convolution s;
  const int64_t channels;  // of one slice of terms
  int64_t rows, columns, down, across;

  FewFilters(const Convolution& s, int64_t n, bool parallel)
      : s(s), channels(s.kh * s.kw < KC ? KC / (s.kh * s.kw) : 1) {
    columns = least(s.ow, POSITIONS), rows = least(s.oh, blocks(POSITIONS, columns));
    // Rows of planes that two jobs see are copied twice: into bands as high as those only where
    // threads would have none.
    const int64_t shared = (s.kh - 1) / s.stride;
    auto jobs = [&] { return n * blocks(s.oh, rows) * blocks(s.ow, columns); };
    auto wanted = [&] { return parallel ? (rows > 2 * shared ? 3 : 1) * threads() : 1; };
    while (jobs() < wanted())
      if (rows > 1) rows = blocks(rows, 2);
      else if (columns > 2 * V * LANES) columns = blocks(columns, 2);
      else break;
    down = blocks(s.oh, rows), across = blocks(s.ow, columns);
  }

  // Vectors are read and added beyond the last position.
  static int64_t room(int64_t positions) { return positions + V * LANES; }

  // sums = or += some terms of a slice, of W vectors of positions from `at` on.
  template <int W>
  static void add(const float* x, const int64_t* places, const float* weights, int64_t terms,
                  int64_t at, float* sums, int64_t line, bool first) {
    vec c[F][W] = {};
    for (int64_t t = 0; t < terms; ++t) {
      const float* seen = x + places[t] + at;
#pragma GCC unroll 8
      for (int v = 0; v < W; ++v) {
        const vec some = load(seen + v * LANES);
#pragma GCC unroll 8
        for (int f = 0; f < F; ++f) c[f][v] += weights[t * F + f] * some;
      }
    }
#pragma GCC unroll 8
    for (int f = 0; f < F; ++f)
#pragma GCC unroll 8
      for (int v = 0; v < W; ++v) {
        float* to = sums + f * line + at + v * LANES;
        store(to, first ? c[f][v] : load(to) + c[f][v]);
      }
  }

  // All terms of the positions that `layout` has, KC at a time: the rounding errors of a longer
  // chain would exceed the framework's.
  void take(const Planes& layout, const scalar_t* x, const scalar_t* weight, int64_t positions,
            float* planes, float* sums) const {
    const int64_t each = s.kh * s.kw;
    int64_t places[KC];
    float weights[KC * F];
    for (int64_t c = 0; c < s.c; c += channels) {
      const int64_t some = least(channels, s.c - c), depth = some * each;
      for (int64_t i = 0; i < some; ++i)
        layout.copy(x + (c + i) * s.h * s.w, planes + i * layout.size());
      Element e(s, 0);
      for (int64_t t = 0, terms; t < depth; t += terms) {
        terms = least(depth - t, KC);
        for (int64_t i = 0; i < terms; ++i, e.move(s, 1)) {
          places[i] = e.channel * layout.size() + layout.place(e.ky, e.kx);
          for (int f = 0; f < F; ++f) weights[i * F + f] = weight[f * s.depth() + c * each + t + i];
        }
        for (int64_t at = 0; at < positions; at += V * LANES)
          (positions - at > V / 2 * LANES ? add<V> : add<V / 2>)(
              planes, places, weights, terms, at, sums, room(positions), c + t == 0);
      }
    }
  }

  // The job's results leave through `out`, which is told where they are.
  template <class Out>
  void run(int64_t job, const scalar_t* weight, Out out, float* planes, float* sums) const {
    const int64_t image = job / (down * across), top = job / across % down * rows;
    const int64_t side = job % across * columns;
    const int64_t high = least(s.oh - top, rows), wide = least(s.ow - side, columns);
    const Planes layout(s, top, side, high, wide);
    const int64_t positions = (high - 1) * layout.wide + wide;
    take(layout, s.x + image * s.c * s.h * s.w, weight, positions, planes, sums);
    for (int64_t y = 0; y < high; ++y) {
      out.pixel = (image * s.oh + top + y) * s.ow + side;
      out.put(0, 0, F, wide, sums + y * layout.wide, room(positions));
    }
  }

  template <class Out>
  int all(int64_t n, const scalar_t* weight, const Out& out, bool parallel) const {
    const Planes most(s, 0, 0, rows, columns);
    const int64_t jobs = n * down * across, held = room(channels * most.size());
    int failed = 0;
#pragma omp parallel if (parallel)
    {
      float* const own = workspace<float>(held + F * room(rows * most.wide));
      // What is read beyond the last channel is added to nothing that is kept; as numbers, since
      // some processors take their time over others.
      if (own) memset(own, 0, size_t(held) * sizeof(float));
#pragma omp for schedule(dynamic) reduction(| : failed)
      for (int64_t job = 0; job < jobs; ++job) {
        failed |= !own;
        if (own) run(job, weight, out, own, own + held);
      }
      free(own);
    }
    return failed;
  }
};

// Whether rows of results are long enough: what stands between them is work for nothing.
inline bool are_few(const Convolution& s, int64_t f) {
  return f <= FEW && s.c > 0 && s.kh * s.kw > 1 && s.ow >= LANES && s.ow >= (s.kw - 1) / s.stride;
}

template <class Out, int F = FEW>
int with_few(const Convolution& s, int64_t n, int64_t f, const scalar_t* weight, const Out& out,
             bool parallel) {
  if constexpr (F > 1)
    if (f < F) return with_few<Out, F - 1>(s, n, f, weight, out, parallel);
  return FewFilters<F>(s, n, parallel).all(n, weight, out, parallel);
}

}  // namespace product
