// Functions of torch::nn that extensions call around their kernels.
#pragma once
#include <utility>
#include <vector>

#include "../types.h"

namespace torch {
struct kConstant_t {};
constexpr kConstant_t kConstant;
}  // namespace torch

namespace torch::nn::functional {

class PadFuncOptions {
  public:
    PadFuncOptions(std::vector<int64_t> pad) : pad_(std::move(pad)) {}
    PadFuncOptions& mode(kConstant_t) { return *this; }
    PadFuncOptions& value(double value) {
        value_ = value;
        return *this;
    }
    const std::vector<int64_t>& pad() const { return pad_; }
    double value() const { return value_; }

  private:
    std::vector<int64_t> pad_;
    double value_ = 0;
};
inline Tensor pad(const Tensor& t, const PadFuncOptions& options) {
    return simt::lite::delegated<Tensor>("constant_pad_nd", t, options.pad(), options.value());
}
#define SIMT_OPERATION(name)                                                                      \
    inline Tensor name(const Tensor& t) { return simt::lite::delegated<Tensor>(#name, t); }
SIMT_OPERATION(relu)
SIMT_OPERATION(gelu)
SIMT_OPERATION(silu)
SIMT_OPERATION(softplus)
#undef SIMT_OPERATION

}  // namespace torch::nn::functional
