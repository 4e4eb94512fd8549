// Streams: every one is the default stream here.
#pragma once
#include "../../cuda_runtime_api.h"
#include "../core/Device.h"

namespace c10::cuda {

class CUDAStream {
  public:
    explicit CUDAStream(cudaStream_t stream = nullptr) : stream_(stream) {}
    cudaStream_t stream() const { return stream_; }
    operator cudaStream_t() const { return stream_; }
    Device device() const { return Device(kCUDA, 0); }
    DeviceIndex device_index() const { return 0; }
    void synchronize() const { (void)cudaStreamSynchronize(stream_); }
    bool query() const { return cudaStreamQuery(stream_) == cudaSuccess; }

  private:
    cudaStream_t stream_;
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return CUDAStream(); }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return CUDAStream(); }

}  // namespace c10::cuda
