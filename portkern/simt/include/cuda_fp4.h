// CUDA's 4-bit floating point.
#pragma once
#include "simt/cuda_only.h"
#include "simt/fp4.h"
