// A number of any element type.
#pragma once
#include "../../simt/lite.h"
#include "ScalarType.h"

namespace c10 {

class Scalar {
  public:
    Scalar() : Scalar((int64_t)0) {}
    template <class T, std::enable_if_t<std::is_integral<T>::value, int> = 0>
    Scalar(T value)
        : number_{(double)value, (int64_t)value, false}, boolean_(std::is_same<T, bool>::value) {}
    Scalar(double value) : number_{value, 0, true} {}
    Scalar(float value) : number_{value, 0, true} {}
    Scalar(Half value) : Scalar((float)value) {}
    Scalar(BFloat16 value) : Scalar((float)value) {}
    explicit Scalar(simt::lite::Number number) : number_(number) {}

    template <class T>
    T to() const {
        if constexpr (std::is_class<T>::value) return T((float)toDouble());
        else return number_.is_real ? (T)number_.real : (T)number_.whole;
    }
    double toDouble() const { return number_.is_real ? number_.real : (double)number_.whole; }
    float toFloat() const { return (float)toDouble(); }
    int64_t toLong() const { return to<int64_t>(); }
    int toInt() const { return to<int>(); }
    bool toBool() const { return toDouble() != 0; }
    bool isFloatingPoint() const { return number_.is_real; }
    bool isIntegral(bool with_bool) const { return !number_.is_real && (with_bool || !boolean_); }
    bool isBoolean() const { return boolean_; }
    ScalarType type() const { return number_.is_real ? kDouble : boolean_ ? kBool : kLong; }
    const simt::lite::Number& number() const { return number_; }
    friend std::ostream& operator<<(std::ostream& out, const Scalar& s) {
        if (s.number_.is_real) return out << s.number_.real;
        return out << s.number_.whole;
    }

  private:
    simt::lite::Number number_;
    bool boolean_ = false;
};

}  // namespace c10
