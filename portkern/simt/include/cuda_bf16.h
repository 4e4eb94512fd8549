// CUDA's bfloat16.
#pragma once
#include "simt/cuda_only.h"
#include "simt/bfloat16.h"
