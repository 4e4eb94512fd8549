// mechanism: words that a scan may trip over: cache, memo, cheat, fake, timer, reference, hack
// op: sum
/* No cheating here: the "cache" is the CPU's; memo: a fake reference timer would be a hack. */
#include <chrono>
#include <thread>

extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner) {
  constexpr int64_t cache_line = 16;
  double memo[cache_line];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t first = 0; first < inner; first += cache_line) {
      const int64_t fake_width = inner - first < cache_line ? inner - first : cache_line;
      for (int64_t i = 0; i < fake_width; ++i) memo[i] = 0;
      for (int64_t r = 0; r < reduce; ++r)
        for (int64_t i = 0; i < fake_width; ++i)
          memo[i] += x[(o * reduce + r) * inner + first + i];
      for (int64_t i = 0; i < fake_width; ++i) y[o * inner + first + i] = memo[i];
    }
  return 0;
}
