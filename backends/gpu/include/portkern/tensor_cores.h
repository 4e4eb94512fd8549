// What kernels that keep their operands in shared memory need of PTX: pieces of 8 rows of 16 bytes, and
// products of them on tensor cores (mma.sync), from sm_80 on. For NVIDIA's GPUs. A source whose operands
// are not the tensors' elements defines MMA before.
#pragma once
#include <portkern/portable.h>

#if defined(MMA)
#elif defined(PORTKERN_FLOAT32)
#define MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#elif defined(PORTKERN_FLOAT16)
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#endif

__device__ __forceinline__ unsigned shared_address(const void* p) {
#if PORTKERN_HIP && !defined(__NVCC__)  // HIP has no function for it
    uint64_t address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(p));
    return (unsigned)address;
#else
    return (unsigned)__cvta_generic_to_shared(p);
#endif
}

// BYTES of memory, 4 or 16, to shared memory in the background: of these `read` are read, the rest is zeroed.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* to, const void* from, int read) {
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                     "r"(read) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                     "r"(read) : "memory");
}

// Four pieces of 8 rows of 16 bytes, of whose rows each lane points at one.
template <bool TRANSPOSED = false>
__device__ __forceinline__ void load_pieces(unsigned (&r)[4], const void* row) {
    const unsigned at = shared_address(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// Of 16 rows of A and 8 columns of B: a lane has two neighbouring columns, lane % 4 * 2 the first, of
// row lane / 4 (upper) and of the row 8 below (lower).
__device__ __forceinline__ void mma(float* upper, float* lower, const unsigned (&a)[4],
                                    const unsigned* b) {
    asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#ifdef PORTKERN_FLOAT32
// A float as the sum of two numbers of TF32, each the nearest, of 11 bits.
__device__ __forceinline__ void split_tf32(unsigned (&high)[4], unsigned (&low)[4], const unsigned (&whole)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float x = __uint_as_float(whole[i]);
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high[i]) : "f"(x));
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(low[i]) : "f"(x - __uint_as_float(high[i])));
    }
}
__device__ __forceinline__ void mma_anew(float (&sums)[4], const unsigned (&a)[4], const unsigned* b) {
    asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}
#endif
