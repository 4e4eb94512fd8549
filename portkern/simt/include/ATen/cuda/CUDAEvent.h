#pragma once
#include "CUDAContext.h"

namespace at::cuda {

class CUDAEvent {
  public:
    explicit CUDAEvent(unsigned flags = cudaEventDisableTiming) {
        C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags));
    }
    CUDAEvent(const CUDAEvent&) = delete;
    CUDAEvent& operator=(const CUDAEvent&) = delete;
    ~CUDAEvent() { (void)cudaEventDestroy(event_); }
    cudaEvent_t event() const { return event_; }
    operator cudaEvent_t() const { return event_; }
    void record(CUDAStream stream = CUDAStream()) {
        C10_CUDA_CHECK(cudaEventRecord(event_, nullptr));
    }
    void block(CUDAStream stream) { C10_CUDA_CHECK(cudaStreamWaitEvent(nullptr, event_)); }
    void synchronize() const { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }
    bool query() const { return cudaEventQuery(event_) == cudaSuccess; }
    float elapsed_time(const CUDAEvent& later) const {
        float ms = 0;
        C10_CUDA_CHECK(cudaEventElapsedTime(&ms, event_, later.event_));
        return ms;
    }

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace at::cuda
