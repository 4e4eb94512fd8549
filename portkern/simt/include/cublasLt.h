// cuBLASLt on the executor.
#pragma once
#include "cublas_v2.h"

#define SIMT_LT(name) cublasLt##name
#define SIMT_LTU(name) CUBLASLT_##name
#define SIMT_B(name) cublas##name
#define SIMT_BU(name) CUBLAS_##name
#define SIMT_BLAS_STREAM cudaStream_t
#define SIMT_BLAS_DATA cudaDataType
#include "simt/blas_lt_spellings.h"
#undef SIMT_LT
#undef SIMT_LTU
#undef SIMT_B
#undef SIMT_BU
#undef SIMT_BLAS_STREAM
#undef SIMT_BLAS_DATA
