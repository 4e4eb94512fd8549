// What cuTensorMapEncodeTiled makes of its arguments, for the tensor copies of ptx_async.h. The rules
// that it checks are those of the CUDA driver API ("Tensor Map Object Management").
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;

typedef enum CUtensorMapDataType_enum {
    CU_TENSOR_MAP_DATA_TYPE_UINT8,
    CU_TENSOR_MAP_DATA_TYPE_UINT16,
    CU_TENSOR_MAP_DATA_TYPE_UINT32,
    CU_TENSOR_MAP_DATA_TYPE_INT32,
    CU_TENSOR_MAP_DATA_TYPE_UINT64,
    CU_TENSOR_MAP_DATA_TYPE_INT64,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
} CUtensorMapDataType;
typedef enum CUtensorMapInterleave_enum {
    CU_TENSOR_MAP_INTERLEAVE_NONE,
    CU_TENSOR_MAP_INTERLEAVE_16B,
    CU_TENSOR_MAP_INTERLEAVE_32B,
} CUtensorMapInterleave;
typedef enum CUtensorMapSwizzle_enum {
    CU_TENSOR_MAP_SWIZZLE_NONE,
    CU_TENSOR_MAP_SWIZZLE_32B,
    CU_TENSOR_MAP_SWIZZLE_64B,
    CU_TENSOR_MAP_SWIZZLE_128B,
} CUtensorMapSwizzle;
typedef enum CUtensorMapL2promotion_enum {
    CU_TENSOR_MAP_L2_PROMOTION_NONE,
    CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
} CUtensorMapL2promotion;
typedef enum CUtensorMapFloatOOBfill_enum {
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
} CUtensorMapFloatOOBfill;
typedef struct alignas(64) CUtensorMap_st {
    cuuint64_t opaque[16];
} CUtensorMap;

namespace simt {

// Dimension 0 lies side by side in memory, and `pitch` bytes are between neighbours of the others.
struct TensorMap {
    uint64_t magic, base;
    uint64_t pitch[4];
    uint32_t last[5];  // the largest coordinate
    uint16_t box[5];
    uint8_t step[5];
    uint8_t rank, element_bytes, swizzle_bytes;

    // Elements of a box along dimension d.
    unsigned count(int d) const { return (box[d] + step[d] - 1u) / step[d]; }

    static constexpr uint64_t known = 0x70616D5F72736E74;
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap), "the driver's has 128 bytes");

static inline unsigned bytes_of(CUtensorMapDataType kind) {
    constexpr uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    return (unsigned)kind < sizeof bytes ? bytes[kind] : 0;
}

// Whether the driver would take these: what it says of a tensor's sizes and of a box'.
static inline bool fits(const TensorMap& m, const cuuint64_t* sizes, const cuuint64_t* pitch,
                        const cuuint32_t* box, const cuuint32_t* step) {
    for (int d = 0; d < m.rank; ++d) {
        if (sizes[d] == 0 || sizes[d] > (uint64_t)1 << 32 || box[d] == 0 || box[d] > 256) return false;
        if (step[d] == 0 || step[d] > 8) return false;
        if (d > 0 && (pitch[d - 1] % 16 || pitch[d - 1] >= (uint64_t)1 << 40)) return false;
    }
    const uint32_t span = box[0] * m.element_bytes;
    return span % 16 == 0 && (!m.swizzle_bytes || span <= m.swizzle_bytes);
}

}  // namespace simt
