#pragma once
#include "CUDAException.h"
#include "CUDAStream.h"

namespace c10::cuda {
inline DeviceIndex device_count() { return 1; }
inline DeviceIndex current_device() { return 0; }
inline void set_device(DeviceIndex device) { C10_CUDA_CHECK(cudaSetDevice(device)); }
inline void MaybeSetDevice(DeviceIndex device) { set_device(device < 0 ? 0 : device); }
inline DeviceIndex ExchangeDevice(DeviceIndex device) {
    set_device(device);
    return 0;
}
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
}  // namespace c10::cuda
