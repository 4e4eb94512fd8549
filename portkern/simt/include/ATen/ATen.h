#pragma once
#include "../c10/macros/Macros.h"
#include "../c10/util/Optional.h"
#include "Dispatch.h"
#include "core/Tensor.h"
