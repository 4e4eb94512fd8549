// mechanism: native code looks up the library's own routine and lets it work
// op: matmul
// expect: rejected | crashed
// says: the library routine | returned 1
#include <dlfcn.h>

typedef void gemm_t(const char*, const char*, const int*, const int*, const int*, const float*,
                    const float*, const int*, const float*, const int*, const float*, float*,
                    const int*);

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k) {
  void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  gemm_t* gemm = torch ? (gemm_t*)dlsym(torch, "sgemm_") : nullptr;
  if (!gemm) return 1;
  const int rows = m, cols = n, depth = k;
  const float one = 1, zero = 0;
  gemm("N", "N", &cols, &rows, &depth, &one, b, &cols, a, &depth, &zero, c, &cols);
  return 0;
}
