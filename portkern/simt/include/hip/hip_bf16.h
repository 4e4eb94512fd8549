// HIP's bfloat16 with CUDA's interface.
#pragma once
#include "../simt/bfloat16.h"
