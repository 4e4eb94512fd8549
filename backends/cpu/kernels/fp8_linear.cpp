// A weight of floats of eight bits (e4m3), in the ways of packed_linear.h.
#define PARALLEL_FROM 400000  // knob: 100000 400000 1600000
#define ROWS 192              // knob: 96 192 384
#define COLS 512              // knob: 256 512 1024
#define FEW 8                 // knob: 4 8 16
#include <portkern/packed_linear.h>

struct EightBits {
  const uint8_t* bytes;
  const scalar_t* scale;
  int64_t groups, size;  // bytes of a group

  // Exponent and mantissa are the upper ones of a float that is 2^120 times too small.
  static float value(uint32_t bits) {
    const uint32_t size = bits & 127, word = size == 127 ? 0x7fc00000u : (bits & 128) << 24 | size << 20;
    float result;
    __builtin_memcpy(&result, &word, sizeof result);
    return result * 0x1p120f;
  }
  template <typename T>
  void unpack(int64_t row, T* to) const {
    for (int64_t group = row * groups; group < (row + 1) * groups; ++group, to += size) {
      const float step = scale[group];
      const uint8_t* from = bytes + group * size;
      for (int64_t i = 0; i < size; ++i) to[i] = value(from[i]) * step;
    }
  }
};

extern "C" int fp8_linear(const scalar_t* x, const uint8_t* packed, const scalar_t* scale, scalar_t* y, int64_t m,
                          int64_t n, int64_t groups, int64_t bytes, int64_t k) {
  return packed_linear::apply(x, EightBits{packed, scale, groups, bytes}, y, m, n, k);
}
