#pragma once
#include "../c10/macros/Macros.h"
#include "../c10/util/Optional.h"
#include "Dispatch.h"
#include "TensorIndexing.h"
#include "core/Tensor.h"

namespace at {
struct GradMode {  // there are no gradients
    static bool is_enabled() { return false; }
};
}  // namespace at
