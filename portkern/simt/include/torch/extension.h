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
