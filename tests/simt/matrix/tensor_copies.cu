// Boxes of tensors of one to five dimensions, to shared memory and back, beside loops over elements: at
// coordinates inside, outside and across every edge, with steps, and what cuTensorMapEncodeTiled refuses. A box
// begins at whole packs of a row, and none is stored that begins ahead of the tensor: an H200 ends kernels that try.
#include <cuda.h>
#include <cuda_runtime.h>

#include "../bugs/check.h"

constexpr int THREADS = 64, MOST = 4096;  // elements of a box

__device__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

struct At {
    int at[5];
};

#define LOAD(RANK, LIST, ...)                                                                              \
    asm volatile("cp.async.bulk.tensor." #RANK "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" \
                 " [%0], [%1, {" LIST "}], [%2];" ::"r"(shared_address(tile)), "l"(&from),                  \
                 "r"(shared_address(&full)), __VA_ARGS__ : "memory")
#define STORE(RANK, LIST, ...)                                                                             \
    asm volatile("cp.async.bulk.tensor." #RANK "d.global.shared::cta.tile.bulk_group [%1, {" LIST "}], [%0];" \
                 ::"r"(shared_address(tile)), "l"(&to), __VA_ARGS__ : "memory")

template <int RANK>
__global__ void copy(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, At c,
                     float* seen, int count, bool stores) {
    __shared__ alignas(128) float tile[MOST];
    __shared__ uint64_t full;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)));
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&full)),
                     "r"(count * 4) : "memory");
        if constexpr (RANK == 1) LOAD(1, "%3", "r"(c.at[0]));
        if constexpr (RANK == 2) LOAD(2, "%3, %4", "r"(c.at[0]), "r"(c.at[1]));
        if constexpr (RANK == 3) LOAD(3, "%3, %4, %5", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]));
        if constexpr (RANK == 4)
            LOAD(4, "%3, %4, %5, %6", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]));
        if constexpr (RANK == 5)
            LOAD(5, "%3, %4, %5, %6, %7", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]));
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&full)) : "memory");
    }
    __syncthreads();
    unsigned done = 0;
    while (!done)
        asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(shared_address(&full)) : "memory");
    for (int i = threadIdx.x; i < count; i += THREADS) seen[i] = tile[i];
    __syncthreads();
    if (threadIdx.x == 0 && stores) {
        if constexpr (RANK == 1) STORE(1, "%2", "r"(c.at[0]));
        if constexpr (RANK == 2) STORE(2, "%2, %3", "r"(c.at[0]), "r"(c.at[1]));
        if constexpr (RANK == 3) STORE(3, "%2, %3, %4", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]));
        if constexpr (RANK == 4)
            STORE(4, "%2, %3, %4, %5", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]));
        if constexpr (RANK == 5)
            STORE(5, "%2, %3, %4, %5, %6", "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]));
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}

struct Tensor {
    cuuint64_t sizes[5], pitch[4];  // bytes
    cuuint32_t box[5], steps[5];
};

CUresult encode(CUtensorMap* map, int rank, void* data, const Tensor& t) {
    static void* found = nullptr;
    if (!found) {
        cudaDriverEntryPointQueryResult told;
        CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &told));
    }
    using Encode = CUresult(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    return reinterpret_cast<Encode*>(found)(
        map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, data, t.sizes, t.pitch, t.box, t.steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

unsigned state = 1;
int draw(int least, int most) {
    state = state * 1664525u + 1013904223u;
    return least + (int)((state >> 8) % (unsigned)(most - least + 1));
}

template <int RANK>
int wrong() {
    Tensor t = {};
    int elements = 1, count = 1;
    At c = {};
    bool stores = true;
    for (int d = 0; d < RANK; ++d) {
        t.sizes[d] = draw(1, RANK == 1 ? 300 : d == 0 ? 24 : 6);
        t.steps[d] = d ? draw(1, 2) : 1;
        t.box[d] = d ? draw(1, 4) : 4 * draw(1, RANK == 1 ? 64 : 5);
        count *= (t.box[d] + t.steps[d] - 1) / t.steps[d];
        c.at[d] = draw(-(int)t.box[d] - 1, (int)t.sizes[d] + 1);
        if (d == 0) c.at[d] = (c.at[d] + 512) / 4 * 4 - 512;
        stores = stores && c.at[d] >= 0;
        // Rows of whole packs, with something between some of them.
        const int pitch = d ? (int)t.pitch[d - 1] : 4;
        if (d < RANK - 1) t.pitch[d] = ((int)t.sizes[d] * pitch + 15) / 16 * 16 + 16 * draw(0, 1);
        elements = (int)t.sizes[d] * pitch / 4;
    }
    const std::vector<float> in = numbers<float>(elements, 9973);
    float *from = to_device(in), *to = device_zeros<float>(elements), *seen = device_array<float>(count);
    CUtensorMap of_from, of_to;
    CHECK_CUDA((cudaError_t)encode(&of_from, RANK, from, t));
    CHECK_CUDA((cudaError_t)encode(&of_to, RANK, to, t));
    copy<RANK><<<1, THREADS>>>(of_from, of_to, c, seen, count, stores);
    finish();
    const std::vector<float> got = to_host(seen, count), stored = to_host(to, elements);
    std::vector<float> want(count), kept(elements);
    for (int i = 0; i < count; ++i) {
        bool inside = true;
        size_t at = 0;
        for (int d = 0, rest = i; d < RANK; ++d) {
            const int each = (t.box[d] + t.steps[d] - 1) / t.steps[d];
            const int64_t place = c.at[d] + (int64_t)(rest % each) * t.steps[d];
            rest /= each;
            inside = inside && place >= 0 && place < (int64_t)t.sizes[d];
            at += place * (d ? t.pitch[d - 1] : 4);
        }
        want[i] = inside ? in[at / 4] : 0;
        if (inside && stores) kept[at / 4] = in[at / 4];
    }
    return (got != want) + (stored != kept);
}

// More copies at once than the executor keeps, 16 bytes each, to shared memory and back.
__global__ void copy_pieces(const float4* from, float4* to, int pieces) {
    extern __shared__ __align__(16) float4 staged[];
    __shared__ uint64_t full;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full)),
                     "r"(pieces * 16) : "memory");
        for (int i = 0; i < pieces; ++i)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];"
                         ::"r"(shared_address(staged + i)), "l"(from + i), "r"(shared_address(&full)) : "memory");
        asm volatile("{\n.reg .pred done;\nagain:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra again;\n}"
                     ::"r"(shared_address(&full)) : "memory");
        for (int i = 0; i < pieces; ++i)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;"
                         ::"l"(to + pieces - 1 - i), "r"(shared_address(staged + i)) : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}

int wrong_pieces(int pieces) {
    const std::vector<float> in = numbers<float>(4 * pieces, 9973);
    float* out = device_array<float>(4 * pieces);
    copy_pieces<<<1, 32, pieces * 16>>>((const float4*)to_device(in), (float4*)out, pieces);
    finish();
    const std::vector<float> got = to_host(out, 4 * pieces);
    int wrong = 0;
    for (int i = 0; i < 4 * pieces; ++i) wrong += got[(pieces - 1 - i / 4) * 4 + i % 4] != in[i];
    return wrong;
}

int refused() {
    float* data = device_array<float>(1024);
    const Tensor sound = {{64, 8}, {256}, {16, 4}, {1, 1}};
    CUtensorMap map;
    int failed = encode(&map, 2, data, sound) != CUDA_SUCCESS;
    Tensor t = sound;
    t.pitch[0] = 260;  // no multiple of 16
    failed += encode(&map, 2, data, t) != CUDA_ERROR_INVALID_VALUE;
    t = sound;
    t.box[1] = 257;
    failed += encode(&map, 2, data, t) != CUDA_ERROR_INVALID_VALUE;
    t = sound;
    t.box[0] = 3;  // 12 bytes
    failed += encode(&map, 2, data, t) != CUDA_ERROR_INVALID_VALUE;
    t = sound;
    t.sizes[1] = 0;
    failed += encode(&map, 2, data, t) != CUDA_ERROR_INVALID_VALUE;
    failed += encode(&map, 2, data + 1, sound) != CUDA_ERROR_INVALID_VALUE;
    failed += encode(&map, 6, data, sound) != CUDA_ERROR_INVALID_VALUE;
    return failed;
}

int main() {
    int failed = refused() + wrong_pieces(3) + wrong_pieces(700);
    for (int round = 0; round < 40; ++round)
        failed += wrong<1>() + wrong<2>() + wrong<3>() + wrong<4>() + wrong<5>();
    std::printf("%d failed\n", failed);
    return failed != 0;
}
