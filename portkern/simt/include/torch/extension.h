// What extensions of PyTorch include: tensors, checks, dispatch, CUDA's streams, bindings.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>

#include "../pybind11/pybind11.h"
#include "all.h"
#include "library.h"

namespace torch {
// Binds a function that releases Python's lock in PyTorch; here there is none to release.
template <class R, class... P>
inline auto wrap_pybind_function(R (*function)(P...)) {
    return function;
}
template <class R, class... P>
inline auto wrap_pybind_function_no_gil(R (*function)(P...)) {
    return function;
}
}  // namespace torch
