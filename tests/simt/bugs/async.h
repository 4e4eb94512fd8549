// What the cases of TMA, mbarriers and wgmma need of PTX, each in one function.
#pragma once
#include <cuda.h>

#include "check.h"

__device__ inline unsigned shared_address(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}
__device__ inline void init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void expect(uint64_t* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes) : "memory");
}
__device__ inline void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra through;\nbra again;\nthrough:\n}" ::"r"(shared_address(barrier)), "r"(parity)
        : "memory");
}
__device__ inline void load_box(void* to, const CUtensorMap* map, int column, int row, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)), "l"(map),
        "r"(shared_address(barrier)), "r"(column), "r"(row) : "memory");
}
__device__ inline void store_box(const CUtensorMap* map, const void* from, int column, int row) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(column), "r"(row) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ inline void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Of a row-major matrix of floats or halves, in boxes.
inline CUtensorMap map_of(CUtensorMapDataType kind, size_t bytes, void* data, int rows, int columns,
                          int box_rows, int box_columns,
                          CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE) {
    using Encode = CUresult(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    void* found = nullptr;
    cudaDriverEntryPointQueryResult told;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                cudaEnableDefault, &told));
    CUtensorMap map;
    const cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows}, pitch[] = {columns * bytes};
    const cuuint32_t box[] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows}, steps[] = {1, 1};
    const CUresult said = reinterpret_cast<Encode*>(found)(
        &map, kind, 2, data, sizes, pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    CHECK_CUDA((cudaError_t)said);
    return map;
}
inline CUtensorMap map_of(float* data, int rows, int columns, int box_rows, int box_columns) {
    return map_of(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, data, rows, columns, box_rows, box_columns);
}
