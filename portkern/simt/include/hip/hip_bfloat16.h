// HIP's older bfloat16: a class of its own beside __hip_bfloat16, with visible bits.
#pragma once
#include <cstdint>
#include <ostream>

#include "../simt/bfloat16.h"

struct hip_bfloat16 {
    uint16_t data;
    enum truncate_t { truncate };

    hip_bfloat16() = default;
    explicit hip_bfloat16(float x) : data((uint16_t)simt::numbers::Brain16::encode(x)) {}
    explicit hip_bfloat16(float x, truncate_t) : data(truncated(x)) {}
    operator float() const { return simt::numbers::Brain16::decode(data); }
    hip_bfloat16& operator=(const float& x) { return *this = hip_bfloat16(x); }

    static hip_bfloat16 round_to_bfloat16(float x) { return hip_bfloat16(x); }
    static hip_bfloat16 round_to_bfloat16(float x, truncate_t) { return hip_bfloat16(x, truncate); }

  private:
    static uint16_t truncated(float x) {
        const uint32_t bits = simt::numbers::punned<uint32_t>(x);
        return (uint16_t)(bits >> 16 | (x != x && (bits & 0xffff)));  // a NaN stays one
    }
};

static inline std::ostream& operator<<(std::ostream& out, hip_bfloat16 x) {
    return out << float(x);
}

static inline hip_bfloat16 operator+(hip_bfloat16 a) { return a; }
static inline hip_bfloat16 operator-(hip_bfloat16 a) {
    a.data ^= 0x8000;
    return a;
}
#define SIMT_HIP_BFLOAT16(OP)                                              \
    static inline hip_bfloat16 operator OP(hip_bfloat16 a, hip_bfloat16 b) { \
        return hip_bfloat16(float(a) OP float(b));                         \
    }                                                                      \
    static inline hip_bfloat16& operator OP##=(hip_bfloat16& a, hip_bfloat16 b) { \
        return a = a OP b;                                                 \
    }
SIMT_HIP_BFLOAT16(+)
SIMT_HIP_BFLOAT16(-)
SIMT_HIP_BFLOAT16(*)
SIMT_HIP_BFLOAT16(/)
#undef SIMT_HIP_BFLOAT16
static inline bool operator==(hip_bfloat16 a, hip_bfloat16 b) { return float(a) == float(b); }
static inline bool operator!=(hip_bfloat16 a, hip_bfloat16 b) { return !(a == b); }
static inline bool operator<(hip_bfloat16 a, hip_bfloat16 b) { return float(a) < float(b); }
static inline bool operator>(hip_bfloat16 a, hip_bfloat16 b) { return b < a; }
static inline bool operator<=(hip_bfloat16 a, hip_bfloat16 b) { return !(a > b); }
static inline bool operator>=(hip_bfloat16 a, hip_bfloat16 b) { return !(a < b); }
static inline hip_bfloat16& operator++(hip_bfloat16& a) { return a += hip_bfloat16(1.0f); }
static inline hip_bfloat16& operator--(hip_bfloat16& a) { return a -= hip_bfloat16(1.0f); }
static inline hip_bfloat16 operator++(hip_bfloat16& a, int) {
    const hip_bfloat16 before = a;
    ++a;
    return before;
}
static inline hip_bfloat16 operator--(hip_bfloat16& a, int) {
    const hip_bfloat16 before = a;
    --a;
    return before;
}

namespace std {
static inline bool isinf(hip_bfloat16 a) { return (a.data & 0x7fff) == 0x7f80; }
static inline bool isnan(hip_bfloat16 a) { return (a.data & 0x7fff) > 0x7f80; }
static inline bool iszero(hip_bfloat16 a) { return (a.data & 0x7fff) == 0; }
}  // namespace std
