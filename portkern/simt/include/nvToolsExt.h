// As it was called before NVTX 3.
#pragma once
#include "nvtx3/nvToolsExt.h"
