// What an sm_90a kernel needs of PTX, each in one function: mbarriers, the bulk tensor copy engine
// (TMA), warpgroup matrix products (wgmma). Names and operands are those of the PTX ISA, 8.0 on.
//
// It is empty unless PORTKERN_HOPPER is defined, as it is where nvcc builds for sm_90a and where the SIMT
// executor is an sm_90; kernels that use it keep another path for the other architectures.
#pragma once
#ifdef PORTKERN_HOPPER
#include <cuda.h>
#include <cuda_runtime.h>
#include <portkern/multiprocessors.h>
#include <stdint.h>

namespace hopper {

// ---- shared memory and barriers

__device__ __forceinline__ unsigned address(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

// A barrier in shared memory that counts arrivals and bytes. One thread initialises; then
// fence_barriers() and __syncthreads().
__device__ __forceinline__ void init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(arrivals));
}
__device__ __forceinline__ void fence_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect_bytes(uint64_t* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)),
                 "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
}
// Until the phase of this parity is complete.
__device__ __forceinline__ void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(address(barrier)), "r"(parity) : "memory");
}

// ---- clusters

// Which block of its cluster this is, and the others' shared memory.
__device__ __forceinline__ int rank() {
    int number;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(number));
    return number;
}
__device__ __forceinline__ float peek(const float* p, int of) {
    float value;
    asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %1, %2;\n"
                 "ld.shared::cluster.f32 %0, [there];\n}" : "=f"(value) : "r"(address(p)), "r"(of));
    return value;
}
// A barrier of all threads of a cluster, in its two halves.
__device__ __forceinline__ void arrive_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_cluster() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- bulk copies

// So many bytes (a multiple of 16, as are both addresses) to shared memory.
__device__ __forceinline__ void load_bytes(void* to, const void* from, unsigned bytes,
                                           uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(address(to)), "l"(from), "r"(bytes), "r"(address(barrier)) : "memory");
}

// The same, and 16 bytes to and from registers, with how the L2 is to treat them.
__device__ __forceinline__ uint64_t evict_first() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ uint64_t evict_last() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ void load_bytes(void* to, const void* from, unsigned bytes,
                                           uint64_t* barrier, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(address(to)), "l"(from), "r"(bytes), "r"(address(barrier)),
        "l"(policy) : "memory");
}
__device__ __forceinline__ uint4 load(const uint4* from, uint64_t policy) {
    uint4 v;
    asm volatile("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from), "l"(policy));
    return v;
}
__device__ __forceinline__ void store(uint4* to, uint4 v, uint64_t policy) {
    asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w), "l"(policy) : "memory");
}

// ---- bulk tensor copies

// A box of a matrix, from (row, column) on, to shared memory; what lies outside comes as zeros.
__device__ __forceinline__ void load_box(void* to, const CUtensorMap* map, int column, int row,
                                         uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(address(to)), "l"(map), "r"(address(barrier)),
        "r"(column), "r"(row) : "memory");
}
// The same of one matrix of a batch.
__device__ __forceinline__ void load_box(void* to, const CUtensorMap* map, int column, int row, int batch,
                                         uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(address(to)), "l"(map), "r"(address(barrier)),
        "r"(column), "r"(row), "r"(batch) : "memory");
}
// A box back to memory, cut off at the matrix' edges. One thread stores, commits and waits; those
// who wrote it call fence_async() first.
__device__ __forceinline__ void store_box(const CUtensorMap* map, const void* from, int column,
                                          int row) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                     map), "r"(address(from)), "r"(column), "r"(row) : "memory");
}
__device__ __forceinline__ void store_box(const CUtensorMap* map, const void* from, int column, int row,
                                          int batch) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
                     map), "r"(address(from)), "r"(column), "r"(row), "r"(batch) : "memory");
}
__device__ __forceinline__ void commit_stores() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until the stores have read shared memory.
__device__ __forceinline__ void wait_stores() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Orders ordinary writes of shared memory before what the copy engine or wgmma read of it.
__device__ __forceinline__ void fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A row-major matrix of 2-byte elements (or 4-byte: `kind`), copied in boxes of box_rows x box_columns
// that span 128 bytes, whose 16-byte pieces are swizzled as wgmma reads them; with `batch`, so many
// matrices, at whose edges a box is cut off. Its address and rows must be multiples of 16 bytes. Returns
// 0, or what cuTensorMapEncodeTiled said.
inline int map_matrix(CUtensorMap* map, CUtensorMapDataType kind, int element_bytes, const void* base,
                      int64_t rows, int64_t columns, int box_rows, int box_columns, int64_t batch = 0) {
    using Encode = CUresult(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);
    static Encode* encode = [] {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult told;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &told);
        return reinterpret_cast<Encode*>(found);
    }();
    if (!encode) return (int)cudaErrorSymbolNotFound;
    const cuuint64_t row_bytes = (cuuint64_t)columns * element_bytes;
    const cuuint64_t sizes[3] = {(cuuint64_t)columns, (cuuint64_t)rows, (cuuint64_t)batch};
    const cuuint64_t pitch[2] = {row_bytes, rows * row_bytes};
    const cuuint32_t box[3] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows, 1}, steps[3] = {1, 1, 1};
    return (int)encode(map, kind, batch ? 3 : 2, const_cast<void*>(base), sizes, pitch, box, steps,
                       CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// ---- tiles

// The rows' and columns' first of the n-th tile of `down` x `across`: WALKED rows of tiles are walked column
// by column, so that what they share stays in the L2.
template <int WALKED, int ROWS, int COLUMNS>
__device__ __forceinline__ int2 place(int number, int down, int across) {
    const int band = number / (WALKED * across), first = band * WALKED;
    const int height = min(WALKED, down - first), within = number - first * across;
    return make_int2((first + within % height) * ROWS, within / height * COLUMNS);
}

// ---- warpgroup products

// How wgmma finds an operand in shared memory: rows of 128 swizzled bytes, groups of 8 rows `stride`
// bytes apart, and, where the operand lies across (its rows are the depth), blocks of 64 columns
// `leading` bytes apart.
__device__ __forceinline__ uint64_t operand(const void* tile, int stride, int leading = 16) {
    const uint64_t field = 0x3FFF;
    return ((address(tile) >> 4) & field) | ((leading >> 4) & field) << 16 |
           ((stride >> 4) & field) << 32 | (uint64_t)1 << 62;
}
// The same for rows that are not swizzled: cores of 8 rows of 16 bytes lie as 128 bytes; `stride` bytes
// to the next 8 rows, `leading` bytes to the next 16 of the same ones.
__device__ __forceinline__ uint64_t plain_operand(const void* tile, int stride, int leading) {
    return operand(tile, stride, leading) & ~((uint64_t)1 << 62);
}
// Before the first product that touches these registers, after the last one, and until all but
// LEFT groups of products are done.
__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int LEFT>
__device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
// After wait_products(), for the registers it was for: what reads them stays behind this.
template <int N>
__device__ __forceinline__ void settle(float (&sums)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// sums += A B (without `keep`, sums = A B) of a warpgroup, 64 x N by a depth of 16, from operand()
// descriptors. A lies along the depth (rows of A), B across it (rows of B) or, B_ALONG, along it. Thread t
// of the warpgroup holds, of each 8 columns j, columns j * 8 + t % 4 * 2 and the next of row
// t / 32 * 16 + t % 32 / 4 in sums[j * 4], sums[j * 4 + 1], and of the row 8 below in the next two.
#define HOPPER_TEN(d) "%" #d "0,%" #d "1,%" #d "2,%" #d "3,%" #d "4,%" #d "5,%" #d "6,%" #d "7,%" #d "8,%" #d "9,"
#define HOPPER_0TO59 \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," HOPPER_TEN(1) HOPPER_TEN(2) HOPPER_TEN(3) HOPPER_TEN(4) HOPPER_TEN(5)
#define HOPPER_8(s, i) \
    "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), "+f"(s[i + 5]), \
        "+f"(s[i + 6]), "+f"(s[i + 7])
#define HOPPER_64(s, i) \
    HOPPER_8(s, i), HOPPER_8(s, i + 8), HOPPER_8(s, i + 16), HOPPER_8(s, i + 24), \
        HOPPER_8(s, i + 32), HOPPER_8(s, i + 40), HOPPER_8(s, i + 48), HOPPER_8(s, i + 56)
#define HOPPER_0TO29 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," HOPPER_TEN(1) HOPPER_TEN(2)
#define HOPPER_32(s, i) HOPPER_8(s, i), HOPPER_8(s, i + 8), HOPPER_8(s, i + 16), HOPPER_8(s, i + 24)
#define HOPPER_FROM_SHARED(KIND, N, LIST, A, B, ACROSS, KEEP, ...)                                  \
    template <bool B_ALONG = false>                                                                 \
    __device__ __forceinline__ void multiply_##KIND(float (&s)[N / 2], uint64_t a, uint64_t b,      \
                                                    bool keep = true) {                             \
        asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\n"                        \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #KIND "." #KIND " {" LIST     \
                     "}, " A ", " B ", keep, 1, 1, 0, " ACROSS ";\n}"                               \
                     : __VA_ARGS__ : "l"(a), "l"(b), "n"(!B_ALONG), "r"((int)keep));                \
    }
#define HOPPER_FROM_SHARED_OF(KIND)                                                                 \
    HOPPER_FROM_SHARED(KIND, 64, HOPPER_0TO29 "%30,%31", "%32", "%33", "%34", "%35", HOPPER_32(s, 0)) \
    HOPPER_FROM_SHARED(KIND, 128, HOPPER_0TO59 "%60,%61,%62,%63", "%64", "%65", "%66", "%67",        \
                       HOPPER_64(s, 0))                                                             \
    HOPPER_FROM_SHARED(KIND, 160, HOPPER_0TO59 HOPPER_TEN(6)                                         \
                       "%70,%71,%72,%73,%74,%75,%76,%77,%78,%79", "%80", "%81", "%82", "%83",         \
                       HOPPER_64(s, 0), HOPPER_8(s, 64), HOPPER_8(s, 72))                            \
    HOPPER_FROM_SHARED(KIND, 192, HOPPER_0TO59 HOPPER_TEN(6) HOPPER_TEN(7) HOPPER_TEN(8)             \
                       "%90,%91,%92,%93,%94,%95", "%96", "%97", "%98", "%99", HOPPER_64(s, 0),        \
                       HOPPER_32(s, 64))                                                             \
    HOPPER_FROM_SHARED(KIND, 256, HOPPER_0TO59 HOPPER_TEN(6) HOPPER_TEN(7) HOPPER_TEN(8)             \
                       HOPPER_TEN(9) HOPPER_TEN(10) HOPPER_TEN(11)                                  \
                       "%120,%121,%122,%123,%124,%125,%126,%127", "%128", "%129", "%130", "%131",   \
                       HOPPER_64(s, 0), HOPPER_64(s, 64))
HOPPER_FROM_SHARED_OF(f16)
HOPPER_FROM_SHARED_OF(bf16)

// The same, 64 x 64, 64 x 80, 64 x 96, 64 x 128 or 64 x 256, with A in registers: pairs of neighbours, of columns
// t % 4 * 2 on in rows r and r + 8, then of the columns 8 further on.
#define HOPPER_FROM_REGISTERS(KIND, N, LIST, A, B, ACROSS, KEEP, ...)                               \
    template <bool B_ALONG = false>                                                                 \
    __device__ __forceinline__ void multiply_##KIND(float (&s)[N / 2], const unsigned (&a)[4],      \
                                                    uint64_t b, bool keep = true) {                 \
        asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\n"                        \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #KIND "." #KIND " {" LIST     \
                     "}, {" A "}, " B ", keep, 1, 1, " ACROSS ";\n}"                                \
                     : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),            \
                       "n"(!B_ALONG), "r"((int)keep));                                              \
    }
#define HOPPER_FROM_REGISTERS_OF(KIND)                                                              \
    HOPPER_FROM_REGISTERS(KIND, 64, HOPPER_0TO29 "%30,%31", "%32,%33,%34,%35", "%36", "%37", "%38",  \
                          HOPPER_32(s, 0))                                                          \
    HOPPER_FROM_REGISTERS(KIND, 80, HOPPER_0TO29 "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39",          \
                          "%40,%41,%42,%43", "%44", "%45", "%46", HOPPER_32(s, 0), HOPPER_8(s, 32)) \
    HOPPER_FROM_REGISTERS(KIND, 96, HOPPER_0TO29 HOPPER_TEN(3) "%40,%41,%42,%43,%44,%45,%46,%47",    \
                          "%48,%49,%50,%51", "%52", "%53", "%54", HOPPER_32(s, 0),                  \
                          HOPPER_8(s, 32), HOPPER_8(s, 40))                                         \
    HOPPER_FROM_REGISTERS(KIND, 128, HOPPER_0TO59 "%60,%61,%62,%63", "%64,%65,%66,%67", "%68", "%69", \
                          "%70", HOPPER_64(s, 0))                                                   \
    HOPPER_FROM_REGISTERS(KIND, 256, HOPPER_0TO59 HOPPER_TEN(6) HOPPER_TEN(7) HOPPER_TEN(8)          \
                          HOPPER_TEN(9) HOPPER_TEN(10) HOPPER_TEN(11)                               \
                          "%120,%121,%122,%123,%124,%125,%126,%127", "%128,%129,%130,%131", "%132",  \
                          "%133", "%134", HOPPER_64(s, 0), HOPPER_64(s, 64))
HOPPER_FROM_REGISTERS_OF(f16)
HOPPER_FROM_REGISTERS_OF(bf16)

// Of the source's own type, where that has 16 bits.
#ifndef PORTKERN_FLOAT32
#ifdef PORTKERN_FLOAT16
#define HOPPER_OWN(NAME) NAME##f16
constexpr CUtensorMapDataType KIND = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
#else
#define HOPPER_OWN(NAME) NAME##bf16
constexpr CUtensorMapDataType KIND = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
#endif
template <bool B_ALONG = false, int N, class Left>
__device__ __forceinline__ void multiply(float (&s)[N], const Left& a, uint64_t b, bool keep = true) {
    HOPPER_OWN(multiply_)<B_ALONG>(s, a, b, keep);
}
#endif

// A warpgroup's registers; all of its warps call it. Needs __launch_bounds__(threads, 1).
template <int COUNT>
__device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

}  // namespace hopper
#endif
