// Where a tensor is: the one device, or the host.
#pragma once
#include <cstdint>
#include <ostream>
#include <string>

#include "../util/Exception.h"

namespace c10 {

enum class DeviceType : int8_t { CPU = 0, CUDA = 1, HIP = 6 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kHIP = DeviceType::HIP;
using DeviceIndex = int8_t;

class Device {
  public:
    Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
    Device(const std::string& text) : type_(kCPU), index_(-1) {
        const bool cuda = text.compare(0, 4, "cuda") == 0;
        TORCH_CHECK(cuda || text == "cpu", "Invalid device '", text, "'; expected cpu or cuda");
        if (!cuda) return;
        type_ = kCUDA;
        if (text.size() > 5) index_ = (DeviceIndex)(text[5] - '0');
    }
    Device(const char* text) : Device(std::string(text)) {}
    DeviceType type() const { return type_; }
    DeviceIndex index() const { return index_; }
    bool has_index() const { return index_ >= 0; }
    bool is_cuda() const { return type_ == kCUDA; }
    bool is_cpu() const { return type_ == kCPU; }
    std::string str() const {
        if (is_cpu()) return "cpu";
        return has_index() ? "cuda:" + std::to_string((int)index_) : "cuda";
    }
    friend bool operator==(const Device& a, const Device& b) {
        return a.type_ == b.type_ && a.index_ == b.index_;
    }
    friend bool operator!=(const Device& a, const Device& b) { return !(a == b); }
    friend std::ostream& operator<<(std::ostream& out, const Device& d) { return out << d.str(); }

  private:
    DeviceType type_;
    DeviceIndex index_;
};

inline std::ostream& operator<<(std::ostream& out, DeviceType type) {
    return out << (type == kCPU ? "cpu" : "cuda");
}

}  // namespace c10
