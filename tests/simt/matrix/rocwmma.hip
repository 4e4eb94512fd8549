// rocwmma's products in every layout beside plain loops. Prints what is wrong, then "done".
#include <hip/hip_runtime.h>
#include <rocwmma/rocwmma.hpp>
#include <cstdio>
#include <type_traits>
#include <vector>

using namespace rocwmma;

template <int M, int N, int K, class T, class C, class LA, class LB>
__global__ void multiply(const T* a, const T* b, const C* c, C* d, int lda, int ldb, int ldc,
                         layout_t layout) {
    __shared__ C out[32 * 40];
    fragment<matrix_a, M, N, K, T, LA> fa;
    fragment<matrix_b, M, N, K, T, LB> fb;
    fragment<accumulator, M, N, K, C> fc, sum;
    load_matrix_sync(fa, a, lda);
    load_matrix_sync(fb, b, ldb);
    load_matrix_sync(fc, c, ldc, layout);
    fill_fragment(sum, C(0));
    mma_sync(sum, fa, fb, sum);
    for (unsigned i = 0; i < sum.num_elements; ++i) sum.x[i] = C(2) * sum.x[i] + fc.x[i];
    store_matrix_sync(out, sum, 40, layout);
    synchronize_workgroup();
    const int rows = layout == mem_row_major ? M : N, columns = layout == mem_row_major ? N : M;
    for (int i = threadIdx.x; i < rows * columns; i += blockDim.x)
        d[i / columns * ldc + i % columns] = out[i / columns * 40 + i % columns];
}

template <class T>
std::vector<T> filled(unsigned seed) {
    std::vector<T> values(64 * 64);
    for (T& value : values) {
        seed = seed * 1664525u + 1013904223u;
        value = T((float)((int)(seed >> 16) % 7 - 3));
    }
    return values;
}
template <class T>
T* device(const std::vector<T>& from) {
    T* p;
    if (hipMalloc(&p, from.size() * sizeof(T)) != hipSuccess) return nullptr;
    (void)hipMemcpy(p, from.data(), from.size() * sizeof(T), hipMemcpyHostToDevice);
    return p;
}

static int wave;

template <int M, int N, int K, class T, class C, class LA, class LB>
void check(const char* name, layout_t layout) {
    constexpr bool ra = std::is_same<LA, row_major>::value, rb = std::is_same<LB, row_major>::value;
    const bool rc = layout == mem_row_major;
    const int lda = (ra ? K : M) + 8, ldb = (rb ? N : K) + 8, ldc = (rc ? N : M) + 8;
    const auto a = filled<T>(1), b = filled<T>(2);
    const auto c = filled<C>(3);
    auto d = filled<C>(4);
    C* to = device(d);
    multiply<M, N, K, T, C, LA, LB>
        <<<1, wave>>>(device(a), device(b), device(c), to, lda, ldb, ldc, layout);
    if (hipMemcpy(d.data(), to, d.size() * sizeof(C), hipMemcpyDeviceToHost) != hipSuccess)
        printf("%s does not run\n", name);
    int wrong = 0;
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            double sum = 0;
            for (int k = 0; k < K; ++k)
                sum += (double)(float)a[ra ? i * lda + k : k * lda + i] *
                       (double)(float)b[rb ? k * ldb + j : j * ldb + k];
            const int at = rc ? i * ldc + j : j * ldc + i;
            wrong += (double)(float)d[at] != 2 * sum + (double)(float)c[at];
        }
    if (wrong) printf("%s %d%d%d: %d wrong\n", name, ra, rb, rc, wrong);
}

template <int M, int N, int K, class T, class C>
void layouts(const char* name) {
    check<M, N, K, T, C, row_major, row_major>(name, mem_row_major);
    check<M, N, K, T, C, row_major, col_major>(name, mem_col_major);
    check<M, N, K, T, C, col_major, row_major>(name, mem_col_major);
    check<M, N, K, T, C, col_major, col_major>(name, mem_row_major);
}

int main() {
    hipDeviceProp_t properties;
    if (hipGetDeviceProperties(&properties, 0) != hipSuccess) return 1;
    wave = properties.warpSize;
    layouts<16, 16, 16, float16_t, float>("16x16x16 float16_t");
    layouts<32, 32, 8, float16_t, float>("32x32x8 float16_t");
    layouts<32, 32, 16, float16_t, float>("32x32x16 float16_t");
    layouts<16, 16, 16, hfloat16_t, float>("16x16x16 hfloat16_t");
    layouts<16, 16, 16, bfloat16_t, float>("16x16x16 bfloat16_t");
    layouts<32, 32, 8, bfloat16_t, float>("32x32x8 bfloat16_t");
    layouts<16, 16, 4, float, float>("16x16x4 float");
    layouts<16, 16, 32, rocwmma::int8_t, int>("16x16x32 int8_t");
    printf("done\n");
}
