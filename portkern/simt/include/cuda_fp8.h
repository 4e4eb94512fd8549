// CUDA's 8-bit floating point.
#pragma once
#include "simt/cuda_only.h"
#include "simt/fp4.h"
#include "simt/fp8.h"
