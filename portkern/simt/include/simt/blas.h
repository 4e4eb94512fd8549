// Dense linear algebra for cuBLAS, cuBLASLt and hipBLAS: column-major, plain loops, done when the
// call returns. Accumulates in float (double for float64, int32 for int8): the TF32 and float16
// compute types are carried out more precisely than on a device.
#pragma once
#include "api.h"

namespace simt::blas {

// cublasStatus_t's numbers; hipBLAS has others, see hipblas.h.
enum Status : int {
    ok = 0,
    not_initialized = 1,
    invalid_value = 7,
    execution_failed = 13,
    not_supported = 15,
};

enum class Type : int {  // cudaDataType's numbers
    f32 = 0,
    f64 = 1,
    f16 = 2,
    i8 = 3,
    i32 = 10,
    bf16 = 14,
    e4m3 = 28,
    e5m2 = 29,
};
enum class Sum : uint8_t { f32, f64, i32 };  // what a product is accumulated in

struct Handle {
    void* stream = nullptr;
    int math = 0;
    int device_scalars = 0;  // pointer mode
    int atomics = 0;
    void* workspace = nullptr;
    size_t workspace_bytes = 0;
};
SIMT_API int create(Handle** handle);
SIMT_API int destroy(Handle* handle);
SIMT_API int check(const Handle* handle);  // ok, or not_initialized

struct Matrix {
    const void* at = nullptr;
    Type type = Type::f32;
    int64_t ld = 0;      // elements from one column to the next
    int64_t stride = 0;  // elements from one matrix of a batch to the next
    bool transposed = false;
};

enum class Activation : uint8_t { none, relu, gelu, gelu_gradient };
struct Epilogue {
    Activation activation = Activation::none;  // gelu: by tanh, as cuBLASLt computes it
    const void* bias = nullptr;                // m elements, one per row
    Type bias_type = Type::f32;
    void* aux = nullptr;  // m x n: what gelu was applied to (written), or is the gradient at (read)
    Type aux_type = Type::f32;
    int64_t aux_ld = 0, aux_stride = 0;
};

// d = epilogue(alpha op(a) op(b) + beta c), op(a) m x k, op(b) k x n, `batch` times.
struct Gemm {
    int64_t m, n, k;
    double alpha, beta;
    Matrix a, b, c, d;  // c and d may be one
    Sum sum = Sum::f32;
    int64_t batch = 1;
    Epilogue epilogue = {};
};
SIMT_API int gemm(const Handle* handle, const Gemm& call, Site at);
// The same with arrays of pointers (on the device) in place of strides.
SIMT_API int gemm_pointers(const Handle* handle, const Gemm& call, const void* const* a,
                           const void* const* b, void* const* c, Site at);

struct Vector {
    const void* at;
    int64_t increment;
};
SIMT_API int gemv(const Handle* handle, bool transposed, int64_t m, int64_t n, double alpha,
                  const Matrix& a, Vector x, double beta, Vector y, Site at);
// a += alpha x yᵀ
SIMT_API int ger(const Handle* handle, int64_t m, int64_t n, double alpha, Vector x, Vector y,
                 const Matrix& a, Site at);
// c = alpha op(a) + beta op(b), m x n
SIMT_API int geam(const Handle* handle, int64_t m, int64_t n, double alpha, const Matrix& a,
                  double beta, const Matrix& b, const Matrix& c, Site at);

// ---- vectors of n elements of f32 or f64

SIMT_API int axpy(const Handle* handle, Type type, int64_t n, double alpha, Vector x, Vector y,
                  Site at);
SIMT_API int scale(const Handle* handle, Type type, int64_t n, double alpha, Vector x, Site at);
SIMT_API int copy(const Handle* handle, Type type, int64_t n, Vector x, Vector y, Site at);
SIMT_API int swap(const Handle* handle, Type type, int64_t n, Vector x, Vector y, Site at);

enum class Reduction : uint8_t { dot, norm, absolute_sum };
SIMT_API int reduce(const Handle* handle, Type type, Reduction how, int64_t n, Vector x, Vector y,
                    void* result, Site at);
// The 1-based index of the element with the largest (smallest) magnitude; the first of equals.
SIMT_API int extreme(const Handle* handle, Type type, bool largest, int64_t n, Vector x,
                     int* result, Site at);

// alpha or beta, behind a pointer of the scale's type
SIMT_API double scalar(const void* p, Type type);
template <class T>
constexpr Type type_of() {
    static_assert(std::is_floating_point<T>::value && sizeof(T) <= 8, "float or double");
    return std::is_same<T, float>::value ? Type::f32 : Type::f64;
}

}  // namespace simt::blas
