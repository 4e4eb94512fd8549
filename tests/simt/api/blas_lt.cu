// cuBLASLt: layouts, batches and epilogues against the formula.
#include <cublasLt.h>

#include <cmath>
#include <vector>

#include "expect.h"

constexpr int m = 8, n = 6, k = 5;
static cublasLtHandle_t handle;
static float *a, *b, *c, *bias, *aux;

static double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static cublasStatus_t run(cublasLtEpilogue_t epilogue, bool with_bias, bool with_aux) {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, lb, lc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const size_t workspace = 1 << 20;
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                   sizeof transposed);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (with_bias)
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    const int64_t ld = m;
    if (with_aux) {
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux,
                                       sizeof aux);
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    }
    EXPECT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 1) ==
           CUBLAS_STATUS_INVALID_VALUE);
    cublasLtMatrixLayoutCreate(&la, CUDA_R_32F, k, m, k);
    cublasLtMatrixLayoutCreate(&lb, CUDA_R_32F, k, n, k);
    cublasLtMatrixLayoutCreate(&lc, CUDA_R_32F, m, n, m);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace, sizeof workspace);
    int count = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, lc, lc, preference,
                                                           1, &found, &count);
    EXPECT((status == CUBLAS_STATUS_SUCCESS) == (count == 1));
    const float alpha = 2, beta = 0;
    if (count)
        status = cublasLtMatmul(handle, desc, &alpha, a, la, b, lb, &beta, c, lc, c, lc,
                                &found.algo, nullptr, 0, 0);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(desc);
    for (auto layout : {la, lb, lc}) cublasLtMatrixLayoutDestroy(layout);
    return status;
}

int main() {
    EXPECT(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    float** all[] = {&a, &b, &c, &bias, &aux};
    for (float** p : all) cudaMallocManaged(p, m * n * k * sizeof(float));
    for (int i = 0; i < m * k; ++i) a[i] = (float)(i % 7 - 3) / 4;
    for (int i = 0; i < n * k; ++i) b[i] = (float)(i % 5 - 2) / 2;
    for (int i = 0; i < m; ++i) bias[i] = (float)i / 8;
    const auto value = [](int i, int j) {
        double sum = 0;
        for (int p = 0; p < k; ++p) sum += a[p + i * k] * b[p + j * k];
        return 2 * sum;
    };
    const auto holds = [&](auto f) {
        for (int j = 0; j < n; ++j)
            for (int i = 0; i < m; ++i)
                if (!(std::fabs(c[i + j * m] - f(value(i, j), i)) < 1e-5)) return false;
        return true;
    };
    EXPECT(run(CUBLASLT_EPILOGUE_DEFAULT, false, false) == CUBLAS_STATUS_SUCCESS);
    EXPECT(holds([](double x, int) { return x; }));
    EXPECT(run(CUBLASLT_EPILOGUE_BIAS, true, false) == CUBLAS_STATUS_SUCCESS);
    EXPECT(holds([](double x, int i) { return x + bias[i]; }));
    EXPECT(run(CUBLASLT_EPILOGUE_RELU_BIAS, true, false) == CUBLAS_STATUS_SUCCESS);
    EXPECT(holds([](double x, int i) { return std::fmax(x + bias[i], 0.0); }));
    EXPECT(run(CUBLASLT_EPILOGUE_GELU, false, false) == CUBLAS_STATUS_SUCCESS);
    EXPECT(holds([](double x, int) { return gelu(x); }));
    EXPECT(run(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, true, true) == CUBLAS_STATUS_SUCCESS);
    EXPECT(holds([](double x, int i) { return gelu(x + bias[i]); }));
    EXPECT(std::fabs(aux[m + 2] - (value(2, 1) + bias[2])) < 1e-6);
    EXPECT(run(CUBLASLT_EPILOGUE_DGELU, false, true) == CUBLAS_STATUS_SUCCESS);
    const double h = 1e-4, at = aux[3];
    const double slope = (gelu(at + h) - gelu(at - h)) / (2 * h);
    EXPECT(std::fabs(c[3] - value(3, 0) * slope) < 1e-3);
    EXPECT(run(CUBLASLT_EPILOGUE_BGRADB, false, false) == CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT(run(CUBLASLT_EPILOGUE_BIAS, false, false) == CUBLAS_STATUS_NOT_SUPPORTED);
    return unmet != 0;
}
