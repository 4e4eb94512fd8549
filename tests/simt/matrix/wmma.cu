// Each wmma product once: a fragment of every shape, type and layout, checked against plain loops.
// Prints the name of each combination whose result is wrong, then "done".
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <cstdio>
#include <type_traits>
#include <vector>

using namespace nvcuda;

template <class Layout>
constexpr wmma::layout_t memory = std::is_same<Layout, wmma::row_major>::value
                                      ? wmma::mem_row_major : wmma::mem_col_major;

// D = 2 A B + C, through shared memory; the factor by way of the fragment's elements.
template <int M, int N, int K, class T, class S, class C, class LA, class LB, class LC>
__global__ void multiply(const S* a, const S* b, const C* c, C* d, int lda, int ldb, int ldc) {
    __shared__ __align__(32) C out[32 * 40];
    wmma::fragment<wmma::matrix_a, M, N, K, T, LA> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, T, LB> fb;
    wmma::fragment<wmma::accumulator, M, N, K, C> fc, sum;
    wmma::load_matrix_sync(fa, a, lda);
    wmma::load_matrix_sync(fb, b, ldb);
    wmma::load_matrix_sync(fc, c, ldc, memory<LC>);
    wmma::fill_fragment(sum, C(0.0f));
    wmma::mma_sync(sum, fa, fb, sum);
    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = C(2.0f) * sum.x[i] + fc.x[i];
    wmma::store_matrix_sync(out, sum, 40, memory<LC>);
    __syncwarp();
    const int rows = memory<LC> == wmma::mem_row_major ? M : N;
    const int columns = memory<LC> == wmma::mem_row_major ? N : M;
    for (int i = threadIdx.x; i < rows * columns; i += 32)
        d[i / columns * ldc + i % columns] = out[i / columns * 40 + i % columns];
}

template <class S>
std::vector<S> filled(unsigned seed, int range) {
    std::vector<S> values(64 * 64);
    const int low = std::is_unsigned<S>::value ? 0 : range;
    for (S& value : values) {
        seed = seed * 1664525u + 1013904223u;
        value = S((float)((int)(seed >> 16) % (2 * range + 1) - low));
    }
    return values;
}
template <class S>
S* device(const std::vector<S>& from) {
    S* p;
    cudaMalloc(&p, from.size() * sizeof(S));
    cudaMemcpy(p, from.data(), from.size() * sizeof(S), cudaMemcpyHostToDevice);
    return p;
}
constexpr int padded(int n) { return (n + 31) / 16 * 16; }

template <int M, int N, int K, class T, class S, class C, class LA, class LB, class LC>
void check(const char* name) {
    constexpr bool ra = std::is_same<LA, wmma::row_major>::value;
    constexpr bool rb = std::is_same<LB, wmma::row_major>::value;
    constexpr bool rc = std::is_same<LC, wmma::row_major>::value;
    const int lda = padded(ra ? K : M), ldb = padded(rb ? N : K), ldc = padded(rc ? N : M);
    const int range = std::is_same<C, __half>::value ? 3 : 8;
    const auto a = filled<S>(1, range), b = filled<S>(2, range);
    const auto c = filled<C>(3, range);
    auto d = filled<C>(4, range);
    C* to = device(d);
    multiply<M, N, K, T, S, C, LA, LB, LC>
        <<<1, 32>>>(device(a), device(b), device(c), to, lda, ldb, ldc);
    if (cudaMemcpy(d.data(), to, d.size() * sizeof(C), cudaMemcpyDeviceToHost) != cudaSuccess)
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

using R = wmma::row_major;
using L = wmma::col_major;
template <int M, int N, int K, class T, class S, class C>
void layouts(const char* name) {
    check<M, N, K, T, S, C, R, R, R>(name);
    check<M, N, K, T, S, C, R, L, L>(name);
    check<M, N, K, T, S, C, L, R, L>(name);
    check<M, N, K, T, S, C, L, L, R>(name);
}
template <class T, class C>
void shapes(const char* name) {
    layouts<16, 16, 16, T, T, C>(name);
    layouts<32, 8, 16, T, T, C>(name);
    layouts<8, 32, 16, T, T, C>(name);
}

int main() {
    shapes<__half, float>("half, float");
    shapes<__half, __half>("half, half");
    shapes<__nv_bfloat16, float>("bfloat16");
    shapes<signed char, int>("signed char");
    shapes<unsigned char, int>("unsigned char");
    layouts<16, 16, 8, wmma::precision::tf32, float, float>("tf32");
    layouts<8, 8, 4, double, double, double>("double");
    printf("done\n");
}
