// CUDA's 8-bit floating point.
#pragma once
#include "simt/fp8.h"
