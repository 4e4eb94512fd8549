// CUDA's half precision.
#pragma once
#include "simt/half.h"
