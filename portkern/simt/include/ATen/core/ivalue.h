// A value of any type that an autograd function keeps from its forward pass for its backward one.
#pragma once
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "Tensor.h"

namespace c10 {

// PyTorch's list has a class of its own; what is asked of it here a vector has.
template <class T>
class List : public std::vector<T> {
  public:
    using std::vector<T>::vector;
    List(const std::vector<T>& all) : std::vector<T>(all) {}
    const T& get(size_t i) const { return (*this)[i]; }
    std::vector<T> vec() const { return *this; }
};

class IValue {
  public:
    IValue() = default;
    IValue(at::Tensor t) : value_(std::move(t)) {}
    IValue(bool b) : value_(b) {}
    template <class T, std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, bool>::value,
                                        int> = 0>
    IValue(T i) : value_((int64_t)i) {}
    IValue(double x) : value_(x) {}
    IValue(float x) : value_((double)x) {}
    IValue(std::string s) : value_(std::move(s)) {}
    IValue(const char* s) : value_(std::string(s)) {}
    IValue(const Scalar& s) {
        if (s.isFloatingPoint()) value_ = s.toDouble();
        else value_ = s.toLong();
    }
    IValue(IntArrayRef all) : value_(all.vec()) {}
    IValue(std::vector<int64_t> all) : value_(std::move(all)) {}
    IValue(std::vector<double> all) : value_(std::move(all)) {}
    IValue(std::vector<at::Tensor> all) : value_(std::move(all)) {}
    template <class T>
    IValue(const std::optional<T>& t) {
        if (t) *this = IValue(*t);
    }

    bool isNone() const { return std::holds_alternative<std::monostate>(value_); }
    bool isTensor() const { return std::holds_alternative<at::Tensor>(value_); }
    bool isInt() const { return std::holds_alternative<int64_t>(value_); }
    bool isDouble() const { return std::holds_alternative<double>(value_); }
    bool isBool() const { return std::holds_alternative<bool>(value_); }
    bool isString() const { return std::holds_alternative<std::string>(value_); }
    at::Tensor toTensor() const { return as<at::Tensor>("Tensor"); }
    int64_t toInt() const { return as<int64_t>("int"); }
    double toDouble() const { return as<double>("float"); }
    bool toBool() const { return as<bool>("bool"); }
    const std::string& toStringRef() const { return as<std::string>("str"); }
    List<int64_t> toIntList() const { return as<std::vector<int64_t>>("List[int]"); }
    std::vector<int64_t> toIntVector() const { return toIntList().vec(); }
    List<double> toDoubleList() const { return as<std::vector<double>>("List[float]"); }
    std::vector<double> toDoubleVector() const { return toDoubleList().vec(); }
    std::vector<at::Tensor> toTensorVector() const {
        return as<std::vector<at::Tensor>>("List[Tensor]");
    }
    List<at::Tensor> toTensorList() const { return toTensorVector(); }
    Scalar toScalar() const { return isDouble() ? Scalar(toDouble()) : Scalar(toInt()); }
    template <class T>
    T to() const {
        if constexpr (std::is_same<T, bool>::value) return toBool();
        else if constexpr (std::is_integral<T>::value) return (T)toInt();
        else if constexpr (std::is_floating_point<T>::value) return (T)toDouble();
        else return as<T>("a value of another type");
    }

  private:
    template <class T>
    const T& as(const char* type) const {
        if (const T* known = std::get_if<T>(&value_)) return *known;
        c10::detail::fail("", "Expected an IValue of type ", type);
    }
    std::variant<std::monostate, at::Tensor, bool, int64_t, double, std::string,
                 std::vector<int64_t>, std::vector<double>, std::vector<at::Tensor>>
        value_;
};

}  // namespace c10
namespace torch {
using c10::IValue;
}  // namespace torch
