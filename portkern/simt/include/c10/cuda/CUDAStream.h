// Streams: every one is the default stream here.
#pragma once
#include "../../cuda_runtime_api.h"
#if SIMT_HIP
#include "../../hip/hip_runtime_api.h"
#endif
#include "../core/Device.h"

namespace c10::cuda {

class CUDAStream {
#if SIMT_HIP
    using Handle = hipStream_t;
#else
    using Handle = cudaStream_t;
#endif

  public:
    explicit CUDAStream(Handle stream = nullptr) : stream_(stream) {}
    Handle stream() const { return stream_; }
    operator Handle() const { return stream_; }
    Device device() const { return Device(kCUDA, 0); }
    DeviceIndex device_index() const { return 0; }
    void synchronize() const { (void)cudaDeviceSynchronize(); }
    bool query() const { return true; }  // what is launched has ended

  private:
    Handle stream_;
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return CUDAStream(); }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return CUDAStream(); }

}  // namespace c10::cuda
