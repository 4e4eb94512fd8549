// CUDA's half precision.
#pragma once
#include "simt/cuda_only.h"
#include "simt/half.h"
