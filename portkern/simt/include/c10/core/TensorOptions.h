// Element type and device of a tensor to be made.
#pragma once
#include "Device.h"
#include "ScalarType.h"

namespace c10 {

enum class Layout : int8_t { Strided };
constexpr Layout kStrided = Layout::Strided;
enum class MemoryFormat : int8_t { Contiguous, Preserve };

// What is not said: float32, on the host, as in PyTorch.
class TensorOptions {
  public:
    TensorOptions() = default;
    TensorOptions(ScalarType type) : type_(type) {}
    TensorOptions(caffe2::TypeMeta type) : type_(type.toScalarType()) {}
    TensorOptions(Device device) : device_(device) {}
    TensorOptions(DeviceType type) : device_(type) {}
    TensorOptions(Layout) {}

    TensorOptions dtype(ScalarType type) const { return with([&](auto& o) { o.type_ = type; }); }
    TensorOptions dtype(caffe2::TypeMeta type) const { return dtype(type.toScalarType()); }
    TensorOptions device(Device device) const { return with([&](auto& o) { o.device_ = device; }); }
    TensorOptions device(DeviceType type, DeviceIndex index = -1) const {
        return device(Device(type, index));
    }
    TensorOptions device_index(DeviceIndex index) const { return device(kCUDA, index); }
    TensorOptions layout(Layout) const { return *this; }
    TensorOptions pinned_memory(bool) const { return *this; }
    TensorOptions memory_format(MemoryFormat) const { return *this; }
    TensorOptions requires_grad(bool wanted) const {
        TORCH_CHECK(!wanted, "There are no gradients here: requires_grad(true) is not modelled");
        return *this;
    }
    caffe2::TypeMeta dtype() const { return type_; }
    Device device() const { return device_; }
    Layout layout() const { return kStrided; }
    bool requires_grad() const { return false; }
    bool has_dtype() const { return true; }
    bool has_device() const { return true; }
    friend std::ostream& operator<<(std::ostream& out, const TensorOptions& o) {
        return out << "TensorOptions(dtype=" << o.type_ << ", device=" << o.device_ << ")";
    }

  private:
    template <class F>
    TensorOptions with(F change) const {
        TensorOptions changed = *this;
        change(changed);
        return changed;
    }
    ScalarType type_ = kFloat;
    Device device_ = kCPU;
};

inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions dtype(caffe2::TypeMeta type) { return TensorOptions(type); }
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions device(DeviceType type, DeviceIndex index = -1) {
    return TensorOptions(Device(type, index));
}

}  // namespace c10
