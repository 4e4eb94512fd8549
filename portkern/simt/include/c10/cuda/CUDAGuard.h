// Guards of the current device: there is one.
#pragma once
#include <optional>

#include "CUDAFunctions.h"

namespace c10::cuda {

class CUDAGuard {
  public:
    explicit CUDAGuard(DeviceIndex device) { set_device(device < 0 ? 0 : device); }
    explicit CUDAGuard(Device device) : CUDAGuard(device.index()) {
        TORCH_CHECK(device.is_cuda(), "CUDAGuard: expected a CUDA device, got ", device);
    }
};
class OptionalCUDAGuard {
  public:
    OptionalCUDAGuard() = default;
    explicit OptionalCUDAGuard(std::optional<Device> device) { if (device) CUDAGuard{*device}; }
    explicit OptionalCUDAGuard(DeviceIndex device) { CUDAGuard{device}; }
};
class CUDAStreamGuard {
  public:
    explicit CUDAStreamGuard(CUDAStream) {}
};

}  // namespace c10::cuda
namespace c10 {
using OptionalDeviceGuard = cuda::OptionalCUDAGuard;
using DeviceGuard = cuda::CUDAGuard;
}  // namespace c10
