// y = x W' with a weight of floats of eight bits (e4m3), in the ways of packed_linear.h.
#define FEW_TILES 256  // knob: 64 128 256 512
#define FEW 8  // knob: 4 8
#include <portkern/packed_linear.h>

struct EightBits {
    static constexpr int EACH = 1;
    const scalar_t* scales;

    struct Group {
        float scale;

        // Its exponent and mantissa are the upper ones of a float that is 2^120 times too small.
        __device__ __forceinline__ float value(unsigned word, int j) const {
            const unsigned bits = word >> j * 8 & 255u, size = bits & 127u;
            const float small = __int_as_float((int)((bits & 128u) << 24 | size << 20));
            const float whole = size == 127u ? __int_as_float(0x7fc00000) : small * 0x1p120f;
            return whole * scale;
        }
    };
    __device__ __forceinline__ Group group(int64_t number) const { return {float(scales[number])}; }
};

extern "C" int fp8_linear(const scalar_t* x, const uint8_t* packed, const scalar_t* scale, scalar_t* y, int64_t m,
                          int64_t n, int64_t groups, int64_t bytes, int64_t k, cudaStream_t stream) {
    return packed_linear::launch<EightBits>({x, packed, {scale}, y, m, n, groups, bytes, k}, stream);
}
