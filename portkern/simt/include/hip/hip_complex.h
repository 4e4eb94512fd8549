#pragma once
#include "hip_runtime.h"
#define SIMT_C(name) hip##name
#define SIMT_MAKE_C(name) make_hip##name
#include "../simt/complex.h"
#undef SIMT_C
#undef SIMT_MAKE_C
