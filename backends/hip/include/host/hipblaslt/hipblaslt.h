// hipBLASLt for host code: types and names, so that a file that calls it parses. Nothing is compiled
// of a call or linked, and arguments are not checked; ROCm's own header is used where hipcc is.
#pragma once
#include <hip/hip_runtime.h>
#include <hip/library_types.h>
#include <hipblas-common/hipblas-common.h>

typedef void* hipblasLtHandle_t;
typedef struct hipblasLtMatmulDescOpaque_t* hipblasLtMatmulDesc_t;
typedef struct hipblasLtMatrixLayoutOpaque_t* hipblasLtMatrixLayout_t;
typedef struct hipblasLtMatmulPreferenceOpaque_t* hipblasLtMatmulPreference_t;
typedef struct hipblasLtMatrixTransformDescOpaque_t* hipblasLtMatrixTransformDesc_t;
typedef __bf16 hipblasLtBfloat16;
typedef _Float16 hipblasLtHalf;
typedef struct { unsigned char data[16]; size_t max_workspace_bytes; } hipblasLtMatmulAlgo_t;
typedef struct {
    hipblasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    hipblasStatus_t state;
    float wavesCount;
    int reserved[4];
} hipblasLtMatmulHeuristicResult_t;
typedef enum {
    HIPBLASLT_EPILOGUE_DEFAULT = 1, HIPBLASLT_EPILOGUE_RELU = 2, HIPBLASLT_EPILOGUE_BIAS = 4,
    HIPBLASLT_EPILOGUE_RELU_BIAS = 6, HIPBLASLT_EPILOGUE_GELU = 32, HIPBLASLT_EPILOGUE_GELU_BIAS = 36,
    HIPBLASLT_EPILOGUE_RELU_AUX = 130, HIPBLASLT_EPILOGUE_RELU_AUX_BIAS = 134,
    HIPBLASLT_EPILOGUE_GELU_AUX = 160, HIPBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
    HIPBLASLT_EPILOGUE_DGELU = 192, HIPBLASLT_EPILOGUE_DGELU_BGRAD = 208,
    HIPBLASLT_EPILOGUE_BGRADA = 256, HIPBLASLT_EPILOGUE_BGRADB = 512
} hipblasLtEpilogue_t;
typedef enum {
    HIPBLASLT_MATMUL_DESC_TRANSA, HIPBLASLT_MATMUL_DESC_TRANSB, HIPBLASLT_MATMUL_DESC_EPILOGUE,
    HIPBLASLT_MATMUL_DESC_BIAS_POINTER, HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
    HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER, HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER,
    HIPBLASLT_MATMUL_DESC_C_SCALE_POINTER, HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER,
    HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER, HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
    HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
    HIPBLASLT_MATMUL_DESC_POINTER_MODE, HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER,
    HIPBLASLT_MATMUL_DESC_FAST_ACCUM
} hipblasLtMatmulDescAttributes_t;
typedef enum {
    HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT, HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
    HIPBLASLT_MATRIX_LAYOUT_TYPE, HIPBLASLT_MATRIX_LAYOUT_ORDER, HIPBLASLT_MATRIX_LAYOUT_ROWS,
    HIPBLASLT_MATRIX_LAYOUT_COLS, HIPBLASLT_MATRIX_LAYOUT_LD
} hipblasLtMatrixLayoutAttribute_t;
typedef enum {
    HIPBLASLT_MATMUL_PREF_SEARCH_MODE, HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
} hipblasLtMatmulPreferenceAttributes_t;

#define PORTKERN_DECLARED(NAME) template <class... A> hipblasStatus_t NAME(A...);
PORTKERN_DECLARED(hipblasLtCreate)
PORTKERN_DECLARED(hipblasLtDestroy)
PORTKERN_DECLARED(hipblasLtGetVersion)
PORTKERN_DECLARED(hipblasLtMatrixLayoutCreate)
PORTKERN_DECLARED(hipblasLtMatrixLayoutDestroy)
PORTKERN_DECLARED(hipblasLtMatrixLayoutSetAttribute)
PORTKERN_DECLARED(hipblasLtMatrixLayoutGetAttribute)
PORTKERN_DECLARED(hipblasLtMatmulDescCreate)
PORTKERN_DECLARED(hipblasLtMatmulDescDestroy)
PORTKERN_DECLARED(hipblasLtMatmulDescSetAttribute)
PORTKERN_DECLARED(hipblasLtMatmulDescGetAttribute)
PORTKERN_DECLARED(hipblasLtMatmulPreferenceCreate)
PORTKERN_DECLARED(hipblasLtMatmulPreferenceDestroy)
PORTKERN_DECLARED(hipblasLtMatmulPreferenceSetAttribute)
PORTKERN_DECLARED(hipblasLtMatmulPreferenceGetAttribute)
PORTKERN_DECLARED(hipblasLtMatmulAlgoGetHeuristic)
PORTKERN_DECLARED(hipblasLtMatmul)
PORTKERN_DECLARED(hipblasLtMatrixTransform)
PORTKERN_DECLARED(hipblasLtMatrixTransformDescCreate)
PORTKERN_DECLARED(hipblasLtMatrixTransformDescDestroy)
PORTKERN_DECLARED(hipblasLtMatrixTransformDescSetAttribute)
#undef PORTKERN_DECLARED
