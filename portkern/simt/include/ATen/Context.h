// What code asks of PyTorch's global state: the answers of a fresh process with one device.
#pragma once
#include "ATen.h"

namespace at {

class Context {
  public:
    bool hasCUDA() const { return true; }
    bool deterministicAlgorithms() const { return false; }
    bool allowTF32CuBLAS() const { return false; }
    bool allowTF32CuDNN() const { return true; }
    bool allowFP16ReductionCuBLAS() const { return true; }
    bool allowBF16ReductionCuBLAS() const { return true; }
    bool userEnabledCuDNN() const { return false; }
};
inline Context& globalContext() {
    static Context context;
    return context;
}
inline bool hasCUDA() { return true; }

}  // namespace at
