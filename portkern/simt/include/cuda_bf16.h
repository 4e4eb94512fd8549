// CUDA's bfloat16.
#pragma once
#include "simt/bfloat16.h"
