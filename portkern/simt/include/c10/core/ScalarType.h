// Element types by PyTorch's numbers.
#pragma once
#include <ostream>

#include "../util/Exception.h"
#include "../util/Half.h"

namespace c10 {

// X(C++ type, name, number)
#define C10_SIMT_TYPES(X)                                                                         \
    X(uint8_t, Byte, 0)                                                                           \
    X(int8_t, Char, 1)                                                                            \
    X(int16_t, Short, 2)                                                                          \
    X(int, Int, 3)                                                                                \
    X(int64_t, Long, 4)                                                                           \
    X(Half, Half, 5)                                                                              \
    X(float, Float, 6)                                                                            \
    X(double, Double, 7)                                                                          \
    X(bool, Bool, 11)                                                                             \
    X(BFloat16, BFloat16, 15)                                                                     \
    X(Float8_e5m2, Float8_e5m2, 23)                                                               \
    X(Float8_e4m3fn, Float8_e4m3fn, 24)                                                           \
    X(Float8_e5m2fnuz, Float8_e5m2fnuz, 25)                                                       \
    X(Float8_e4m3fnuz, Float8_e4m3fnuz, 26)                                                       \
    X(uint16_t, UInt16, 27)                                                                       \
    X(uint32_t, UInt32, 28)                                                                       \
    X(uint64_t, UInt64, 29)

#define C10_SIMT_TYPE(T, name, number) name = number,
enum class ScalarType : int8_t { C10_SIMT_TYPES(C10_SIMT_TYPE) Undefined = 45 };
#undef C10_SIMT_TYPE

// k…: the names that programs use. kFloat32 is kFloat, kHalf kFloat16, and so on.
#define C10_SIMT_TYPE(T, name, number) constexpr ScalarType k##name = ScalarType::name;
C10_SIMT_TYPES(C10_SIMT_TYPE)
#undef C10_SIMT_TYPE
constexpr ScalarType kUInt8 = kByte, kInt8 = kChar, kInt16 = kShort, kInt32 = kInt, kInt64 = kLong,
                     kFloat16 = kHalf, kFloat32 = kFloat, kFloat64 = kDouble;

// The element type of a C++ type; no member for a type that is none, such as __half.
template <class T>
struct CppTypeToScalarType;
namespace impl {
template <ScalarType type>
struct ScalarTypeToCPPType;
template <ScalarType type>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<type>::type;
#define C10_SIMT_TYPE(T, name, number)                                                            \
    template <>                                                                                   \
    struct ScalarTypeToCPPType<ScalarType::name> {                                                \
        using type = T;                                                                           \
    };
C10_SIMT_TYPES(C10_SIMT_TYPE)
#undef C10_SIMT_TYPE
}  // namespace impl
#define C10_SIMT_TYPE(T, name, number)                                                            \
    template <>                                                                                   \
    struct CppTypeToScalarType<T> {                                                               \
        static constexpr ScalarType value = ScalarType::name;                                     \
    };
C10_SIMT_TYPES(C10_SIMT_TYPE)
#undef C10_SIMT_TYPE
// long long is another type than int64_t here.
template <>
struct CppTypeToScalarType<long long> {
    static constexpr ScalarType value = ScalarType::Long;
};

inline const char* toString(ScalarType type) { return simt::lite::dtype_name((int)type); }
inline size_t elementSize(ScalarType type) { return simt::lite::dtype_size((int)type); }
inline std::ostream& operator<<(std::ostream& out, ScalarType type) {
    return out << toString(type);
}

inline bool isFloatingType(ScalarType t) {
    return t == kHalf || t == kFloat || t == kDouble || t == kBFloat16 ||
           (t >= kFloat8_e5m2 && t <= kFloat8_e4m3fnuz);
}
inline bool isIntegralType(ScalarType t, bool with_bool = false) {
    return t == kBool ? with_bool : !isFloatingType(t) && t != ScalarType::Undefined;
}
inline bool isReducedFloatingType(ScalarType t) {
    return isFloatingType(t) && t != kFloat && t != kDouble;
}
// The type that both convert to: the wider of a kind, and floating before integral before bool.
inline ScalarType promoteTypes(ScalarType a, ScalarType b) {
    if (a == b) return a;
    const auto rank = [](ScalarType t) {
        return isFloatingType(t) ? 100 + (int)elementSize(t) : t == kBool ? 0 : (int)elementSize(t);
    };
    if (rank(a) == rank(b)) return isFloatingType(a) ? kFloat : a > b ? a : b;
    return rank(a) > rank(b) ? a : b;
}

}  // namespace c10

namespace caffe2 {

// What Tensor::dtype() returns: it compares with and becomes a ScalarType.
class TypeMeta {
  public:
    TypeMeta() = default;
    TypeMeta(c10::ScalarType type) : type_(type) {}
    template <class T>
    static TypeMeta Make() { return c10::CppTypeToScalarType<T>::value; }
    c10::ScalarType toScalarType() const { return type_; }
    operator c10::ScalarType() const { return type_; }
    size_t itemsize() const { return c10::elementSize(type_); }
    const char* name() const { return c10::toString(type_); }
    friend bool operator==(TypeMeta a, TypeMeta b) { return a.type_ == b.type_; }
    friend bool operator!=(TypeMeta a, TypeMeta b) { return a.type_ != b.type_; }
    friend bool operator==(TypeMeta a, c10::ScalarType b) { return a.type_ == b; }
    friend bool operator!=(TypeMeta a, c10::ScalarType b) { return a.type_ != b; }
    friend bool operator==(c10::ScalarType a, TypeMeta b) { return a == b.type_; }
    friend bool operator!=(c10::ScalarType a, TypeMeta b) { return a != b.type_; }
    friend std::ostream& operator<<(std::ostream& out, TypeMeta t) { return out << t.type_; }

  private:
    c10::ScalarType type_ = c10::ScalarType::Undefined;
};

}  // namespace caffe2

namespace c10 {
inline ScalarType typeMetaToScalarType(caffe2::TypeMeta t) { return t.toScalarType(); }
inline caffe2::TypeMeta scalarTypeToTypeMeta(ScalarType t) { return t; }
}  // namespace c10
