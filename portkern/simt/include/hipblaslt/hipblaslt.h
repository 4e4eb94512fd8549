// hipBLASLt on the executor.
#pragma once
#include "../hipblas/hipblas.h"

#define SIMT_LT(name) hipblasLt##name
#define SIMT_LTU(name) HIPBLASLT_##name
#define SIMT_B(name) hipblas##name
#define SIMT_BU(name) HIPBLAS_##name
#define SIMT_BLAS_STREAM hipStream_t
#define SIMT_BLAS_DATA hipDataType
#include "../simt/blas_lt_spellings.h"
#undef SIMT_LT
#undef SIMT_LTU
#undef SIMT_B
#undef SIMT_BU
#undef SIMT_BLAS_STREAM
#undef SIMT_BLAS_DATA
