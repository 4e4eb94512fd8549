// mechanism: a kernel of its own computes nothing, the vendor's library the product
// backend: cuda
// op: matmul
// expect: rejected | crashed
// says: G302 | returned | did the work
// emulator: none
#include <dlfcn.h>

typedef int (*Create)(void**);
typedef int (*Multiply)(void*, int, int, int, int, int, const float*, const float*, int,
                        const float*, int, const float*, float*, int);

__global__ void matmul_kernel(const scalar_t* a, scalar_t* c) {
    if (a == c) c[0] = 0.0f;
}

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k, cudaStream_t stream) {
    if (m * n * k == 0) return (int)cudaMemsetAsync(c, 0, m * n * sizeof(scalar_t), stream);
    static void *library, *handle;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"})
        if (!library) library = dlopen(name, RTLD_NOW);
    if (!library) return 1;
    const Create create = (Create)dlsym(library, "cublasCreate_v2");
    const Multiply multiply = (Multiply)dlsym(library, "cublasSgemm_v2");
    if (!create || !multiply || (!handle && create(&handle))) return 2;
    matmul_kernel<<<1, 32, 0, stream>>>(a, c);
    const float one = 1.0f, zero = 0.0f;  // its columns are our rows
    return multiply(handle, 0, 0, (int)n, (int)m, (int)k, &one, b, (int)n, a, (int)k, &zero, c,
                    (int)n);
}
