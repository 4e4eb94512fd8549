#pragma once
#include "cuda_runtime.h"
#define SIMT_C(name) cu##name
#define SIMT_MAKE_C(name) make_cu##name
#include "simt/complex.h"
#undef SIMT_C
#undef SIMT_MAKE_C
