#pragma once
#include "../ATen/Parallel.h"
#include "../ATen/cuda/CUDAContext.h"
#include "autograd.h"
#include "nn/functional.h"
#include "types.h"

namespace torch {

class NoGradGuard {};  // there are no gradients

namespace cuda {
inline bool is_available() { return true; }
inline size_t device_count() { return 1; }
inline void synchronize(int64_t = -1) { c10::cuda::device_synchronize(); }
}  // namespace cuda

}  // namespace torch
