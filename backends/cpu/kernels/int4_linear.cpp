// A weight of four bits, two in a byte, in the ways of packed_linear.h.
#define PARALLEL_FROM 400000  // knob: 100000 400000 1600000
#define ROWS 192              // knob: 96 192 384
#define COLS 512              // knob: 256 512 1024
#define FEW 8                 // knob: 4 8 16
#include <portkern/packed_linear.h>

struct FourBits {
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

extern "C" int int4_linear(const scalar_t* x, const uint8_t* packed, const scalar_t* scale, const scalar_t* low,
                           scalar_t* y, int64_t m, int64_t n, int64_t groups, int64_t bytes, int64_t k) {
  return packed_linear::apply(x, FourBits{packed, scale, low, groups, bytes}, y, m, n, k);
}
