// y = x W' with a weight of four bits, two in a byte, in the ways of packed_linear.h.
#define FEW_TILES 256  // knob: 64 128 256 512
#define FEW 8  // knob: 4 8
#include <portkern/packed_linear.h>

struct FourBits {
    static constexpr int EACH = 2;
    const scalar_t *scales, *lows;

    struct Group {
        float scale, low;

        // Four bits as a float: beside 2^23 they are its lowest.
        __device__ __forceinline__ float value(unsigned word, int j) const {
            const float whole = __int_as_float((int)(word >> j * 4 & 15u | 0x4b000000u)) - 8388608.0f;
            return fmaf(whole, scale, low);
        }
    };
    __device__ __forceinline__ Group group(int64_t number) const {
        return {float(scales[number]), float(lows[number])};
    }
};

extern "C" int int4_linear(const scalar_t* x, const uint8_t* packed, const scalar_t* scale, const scalar_t* low,
                           scalar_t* y, int64_t m, int64_t n, int64_t groups, int64_t bytes, int64_t k,
                           cudaStream_t stream) {
    return packed_linear::launch<FourBits>({x, packed, {scale, low}, y, m, n, groups, bytes, k}, stream);
}
