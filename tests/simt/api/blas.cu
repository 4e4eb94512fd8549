// cuBLAS against sums written out, for shapes that are not a multiple of anything.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "expect.h"

static cublasHandle_t handle;

template <class T>
struct Device {  // a copy on the device
    T* at;
    size_t count;
    explicit Device(const std::vector<T>& from) : count(from.size()) {
        cudaMalloc(&at, count * sizeof(T));
        cudaMemcpy(at, from.data(), count * sizeof(T), cudaMemcpyHostToDevice);
    }
    ~Device() { cudaFree(at); }
    operator T*() const { return at; }
    std::vector<T> read() const {
        std::vector<T> back(count);
        cudaMemcpy(back.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost);
        return back;
    }
};

template <class T>
static std::vector<T> numbers(size_t n, unsigned seed) {
    std::vector<T> v(n);
    for (size_t i = 0; i < n; ++i) {
        seed = seed * 1664525u + 1013904223u;
        const int small = (int)(seed >> 24) % 17 - 8;
        v[i] = std::is_integral<T>::value ? T(small) : T((float)small / 4);
    }
    return v;
}

// alpha op(a) op(b) + beta c, column-major, in double
template <class A, class C>
static std::vector<double> expected(bool ta, bool tb, int m, int n, int k, double alpha,
                                    const A* a, int lda, const A* b, int ldb, double beta,
                                    const C* c, int ldc) {
    std::vector<double> out((size_t)ldc * n);
    for (int j = 0; j < n; ++j)
        for (int i = 0; i < m; ++i) {
            double sum = 0;
            for (int p = 0; p < k; ++p)
                sum += (double)(float)(ta ? a[p + i * lda] : a[i + p * lda]) *
                       (double)(float)(tb ? b[j + p * ldb] : b[p + j * ldb]);
            out[i + j * ldc] = alpha * sum + (beta ? beta * (double)(float)c[i + j * ldc] : 0);
        }
    return out;
}

template <class C>
static bool close(const std::vector<double>& want, const std::vector<C>& got, int m, int n, int ldc,
                  double tolerance) {
    for (int j = 0; j < n; ++j)
        for (int i = 0; i < m; ++i) {
            const double w = want[i + j * ldc], g = (double)(float)got[i + j * ldc];
            if (!(std::fabs(w - g) <= tolerance * (1 + std::fabs(w)))) return false;
        }
    return true;
}

static void single(bool ta, bool tb, int m, int n, int k) {
    const int lda = (ta ? k : m) + 3, ldb = (tb ? n : k) + 1, ldc = m + 2;
    const auto a = numbers<float>((size_t)lda * (ta ? m : k), 1);
    const auto b = numbers<float>((size_t)ldb * (tb ? k : n), 2);
    auto c = numbers<float>((size_t)ldc * n, 3);
    const float alpha = 1.5f, beta = 0.5f, zero = 0;
    const auto op = [](bool t) { return t ? CUBLAS_OP_T : CUBLAS_OP_N; };
    {
        Device<float> da(a), db(b), dc(c);
        EXPECT(cublasSgemm(handle, op(ta), op(tb), m, n, k, &alpha, da, lda, db, ldb, &beta, dc,
                           ldc) == CUBLAS_STATUS_SUCCESS);
        const auto want = expected(ta, tb, m, n, k, alpha, a.data(), lda, b.data(), ldb, beta,
                                   c.data(), ldc);
        EXPECT(close(want, dc.read(), m, n, ldc, 1e-5));
    }
    for (float& x : c) x = NAN;  // with beta 0, C is not read
    Device<float> da(a), db(b), dc(c);
    cublasSgemm(handle, op(ta), op(tb), m, n, k, &alpha, da, lda, db, ldb, &zero, dc, ldc);
    const auto want = expected(ta, tb, m, n, k, alpha, a.data(), lda, b.data(), ldb, 0, c.data(),
                               ldc);
    EXPECT(close(want, dc.read(), m, n, ldc, 1e-5));
    EXPECT(std::isnan(dc.read()[m]));  // the padding is not touched
}

template <class In, class Out, class Scale>
static void mixed(cudaDataType in, cudaDataType out, cublasComputeType_t compute,
                  double tolerance) {
    const int m = 37, n = 19, k = 45, batch = 3;
    const auto a = numbers<In>((size_t)m * k * batch, 4), b = numbers<In>((size_t)k * n * batch, 5);
    const auto c = numbers<Out>((size_t)m * n * batch, 6);
    const Scale alpha = Scale(2.0f), beta = Scale(1.0f);
    Device<In> da(a), db(b);
    Device<Out> dc(c);
    EXPECT(cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, da, in, m,
                                      (long long)m * k, db, in, k, (long long)k * n, &beta, dc, out,
                                      m, (long long)m * n, batch, compute, CUBLAS_GEMM_DEFAULT) ==
           CUBLAS_STATUS_SUCCESS);
    const auto got = dc.read();
    for (int i = 0; i < batch; ++i) {
        const auto want = expected(false, false, m, n, k, 2, a.data() + i * m * k, m,
                                   b.data() + i * k * n, k, 1, c.data() + i * m * n, m);
        EXPECT(close(want, std::vector<Out>(got.begin() + i * m * n, got.end()), m, n, m,
                     tolerance));
    }
}

static void others() {
    const int m = 5, n = 7;
    const auto a = numbers<float>(m * n, 8), x = numbers<float>(n, 9);
    const auto y = numbers<float>(m, 10);
    Device<float> da(a), dx(x), dy(y);
    const float one = 1, half = 0.5f;
    cublasSgemv(handle, CUBLAS_OP_N, m, n, &one, da, m, dx, 1, &half, dy, 1);
    auto want = expected(false, false, m, 1, n, 1, a.data(), m, x.data(), n, 0.5, y.data(), m);
    EXPECT(close(want, dy.read(), m, 1, m, 1e-5));
    cublasSgemv(handle, CUBLAS_OP_T, m, n, &one, da, m, dy, 1, &half, dx, 1);
    const auto y2 = dy.read();
    want = expected(true, false, n, 1, m, 1, a.data(), m, y2.data(), m, 0.5, x.data(), n);
    EXPECT(close(want, dx.read(), n, 1, n, 1e-5));

    Device<float> v({3, -4, 0, 12}), w({1, 1, 1, 1});
    float result = 0;
    int at = 0;
    EXPECT(!cublasSnrm2(handle, 4, v, 1, &result) && result == 13);
    EXPECT(!cublasSdot(handle, 2, v, 2, w, 1, &result) && result == 3);
    EXPECT(!cublasSasum(handle, 4, v, 1, &result) && result == 19);
    EXPECT(!cublasIsamax(handle, 4, v, 1, &at) && at == 4);
    const float two = 2;
    EXPECT(!cublasSaxpy(handle, 4, &two, v, 1, w, 1) && w.read()[3] == 25);
    EXPECT(!cublasSscal(handle, 4, &two, w, 1) && w.read()[1] == -14);
    EXPECT(!cublasScopy(handle, 4, v, 1, w, -1) && w.read()[0] == 12);
    Device<float> t(std::vector<float>(m * n));
    cublasSgeam(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, &one, da, m, &half, da, n, t, n);
    EXPECT(t.read()[1] == a[m] + a[1] / 2);
}

static void refusals() {
    Device<float> a(std::vector<float>(12)), c(std::vector<float>(16));
    const float one = 1;
    // a leading dimension below the number of rows; a handle that is gone; C too small
    EXPECT(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 3, &one, a, 3, a, 3, &one, c, 4) ==
           CUBLAS_STATUS_INVALID_VALUE);
    cublasHandle_t gone;
    cublasCreate(&gone);
    cublasDestroy(gone);
    EXPECT(cublasSetMathMode(gone, CUBLAS_DEFAULT_MATH) == CUBLAS_STATUS_NOT_INITIALIZED);
    const auto op = CUBLAS_OP_N;
    EXPECT(cublasSgemm(handle, op, op, 4, 5, 3, &one, a, 4, a, 3, &one, c, 4) == 13);  // SX101
}

int main() {
    EXPECT(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    EXPECT(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH) == CUBLAS_STATUS_SUCCESS);
    for (int t = 0; t < 4; ++t) {
        single(t & 1, t & 2, 33, 18, 300);
        single(t & 1, t & 2, 1, 1, 1);
        single(t & 1, t & 2, 150, 5, 7);
    }
    mixed<__half, __half, float>(CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, 1e-3);
    mixed<__half, __half, __half>(CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F, 1e-3);
    mixed<__nv_bfloat16, __nv_bfloat16, float>(CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1e-2);
    mixed<__half, float, float>(CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 1e-5);
    mixed<signed char, int, int>(CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, 0);
    mixed<double, double, double>(CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 1e-6);
    others();
    refusals();
    EXPECT(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
    return unmet != 0;
}
