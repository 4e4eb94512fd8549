// Tensors in the namespace torch.
#pragma once
#include "../ATen/ATen.h"

namespace torch {
using namespace at;
using c10::device;
using c10::dtype;
using c10::nullopt;
using c10::optional;
}  // namespace torch
