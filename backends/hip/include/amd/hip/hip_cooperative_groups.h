// Cooperative groups for HIP where ROCm's header is absent (PyPI has none): its names, and the code
// that they stand for on AMD. cooperative_groups/reduce.h and scan.h, which HIP lacks, are not here.
#pragma once
#include <hip/hip_runtime.h>

namespace cooperative_groups {
namespace portkern_groups {
typedef unsigned long long mask_t;
__device__ inline unsigned lane() { return __lane_id(); }
__device__ inline unsigned rank_in_block() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
__device__ inline unsigned threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }
/// Lanes of a wave run together: what is left is that the compiler moves nothing across.
__device__ inline void sync_wave() { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"); __builtin_amdgcn_wave_barrier(); }
}  // namespace portkern_groups

enum group_type { cg_invalid, cg_multi_grid, cg_grid, cg_workgroup, cg_tiled_group, cg_coalesced_group };

class thread_block;
class coalesced_group;

class thread_group {
  protected:
    group_type kind_ = cg_invalid;
    unsigned size_ = 0, tile_ = 0;
    portkern_groups::mask_t mask_ = 0;
    __device__ thread_group(group_type kind, unsigned size, portkern_groups::mask_t mask = 0, unsigned tile = 0)
        : kind_(kind), size_(size), tile_(tile), mask_(mask) {}
    friend __device__ inline thread_group tiled_partition(const thread_group&, unsigned);

  public:
    __device__ unsigned size() const { return size_; }
    __device__ unsigned num_threads() const { return size_; }
    __device__ group_type cg_type() const { return kind_; }
    __device__ bool is_valid() const { return kind_ != cg_invalid; }
    __device__ unsigned thread_rank() const {
        if (kind_ == cg_tiled_group) return portkern_groups::rank_in_block() & (tile_ - 1);
        if (kind_ == cg_coalesced_group)
            return __popcll(mask_ & ((1ull << portkern_groups::lane()) - 1));
        if (kind_ == cg_grid)
            return (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)) *
                       portkern_groups::threads_of_block() + portkern_groups::rank_in_block();
        return portkern_groups::rank_in_block();
    }
    __device__ void sync() const {
        if (kind_ == cg_grid) __ockl_grid_sync();
        else if (kind_ == cg_workgroup) __syncthreads();
        else portkern_groups::sync_wave();
    }
};

class thread_block : public thread_group {
    __device__ thread_block() : thread_group(cg_workgroup, portkern_groups::threads_of_block()) {}
    friend __device__ inline thread_block this_thread_block();

  public:
    static __device__ void sync() { __syncthreads(); }
    static __device__ unsigned thread_rank() { return portkern_groups::rank_in_block(); }
    static __device__ unsigned size() { return portkern_groups::threads_of_block(); }
    static __device__ unsigned num_threads() { return portkern_groups::threads_of_block(); }
    static __device__ dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
    static __device__ dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
    static __device__ dim3 group_dim() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
    static __device__ dim3 dim_threads() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
};
__device__ inline thread_block this_thread_block() { return thread_block(); }

class grid_group : public thread_group {
    __device__ grid_group()
        : thread_group(cg_grid, gridDim.x * gridDim.y * gridDim.z * portkern_groups::threads_of_block()) {}
    friend __device__ inline grid_group this_grid();

  public:
    __device__ bool is_valid() const { return __ockl_grid_is_valid(); }
    __device__ void sync() const { __ockl_grid_sync(); }
    __device__ dim3 group_dim() const { return dim3(gridDim.x, gridDim.y, gridDim.z); }
    __device__ dim3 dim_blocks() const { return dim3(gridDim.x, gridDim.y, gridDim.z); }
    __device__ dim3 block_index() const { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
    __device__ unsigned block_rank() const { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
    __device__ unsigned num_blocks() const { return gridDim.x * gridDim.y * gridDim.z; }
};
__device__ inline grid_group this_grid() { return grid_group(); }

class multi_grid_group : public thread_group {
    __device__ multi_grid_group() : thread_group(cg_multi_grid, __ockl_multi_grid_size()) {}
    friend __device__ inline multi_grid_group this_multi_grid();

  public:
    __device__ unsigned num_grids() const { return __ockl_multi_grid_num_grids(); }
    __device__ unsigned grid_rank() const { return __ockl_multi_grid_grid_rank(); }
    __device__ unsigned thread_rank() const { return __ockl_multi_grid_thread_rank(); }
    __device__ bool is_valid() const { return __ockl_multi_grid_is_valid(); }
    __device__ void sync() const { __ockl_multi_grid_sync(); }
};
__device__ inline multi_grid_group this_multi_grid() { return multi_grid_group(); }

class coalesced_group : public thread_group {
    __device__ explicit coalesced_group(portkern_groups::mask_t mask)
        : thread_group(cg_coalesced_group, __popcll(mask), mask) {}
    friend __device__ inline coalesced_group coalesced_threads();
    friend __device__ inline coalesced_group binary_partition(const coalesced_group&, bool);
    template <unsigned, class> friend class thread_block_tile;
    /// The lane of the member that has this rank.
    __device__ unsigned lane_of(unsigned rank) const {
        portkern_groups::mask_t left = mask_;
        for (unsigned n = 0; n < rank && left; n++) left &= left - 1;
        return left ? __ffsll(left) - 1 : portkern_groups::lane();
    }

  public:
    __device__ unsigned meta_group_rank() const { return 0; }
    __device__ unsigned meta_group_size() const { return 1; }
    __device__ void sync() const { portkern_groups::sync_wave(); }
    template <typename T> __device__ T shfl(T v, int rank) const { return __shfl(v, lane_of(rank % size())); }
    template <typename T> __device__ T shfl_down(T v, unsigned delta) const {
        const unsigned rank = thread_rank() + delta;
        return __shfl(v, rank < size() ? lane_of(rank) : portkern_groups::lane());
    }
    template <typename T> __device__ T shfl_up(T v, unsigned delta) const {
        const unsigned rank = thread_rank();
        return __shfl(v, rank >= delta ? lane_of(rank - delta) : portkern_groups::lane());
    }
    __device__ portkern_groups::mask_t ballot(int p) const {
        const portkern_groups::mask_t lanes = __ballot(p) & mask_;
        portkern_groups::mask_t ranks = 0;
        for (unsigned n = 0; n < size(); n++) ranks |= (lanes >> lane_of(n) & 1ull) << n;
        return ranks;
    }
    __device__ int any(int p) const { return (__ballot(p) & mask_) != 0; }
    __device__ int all(int p) const { return (__ballot(p) & mask_) == mask_; }
};
__device__ inline coalesced_group coalesced_threads() { return coalesced_group(__ballot(1)); }
__device__ inline coalesced_group binary_partition(const coalesced_group& g, bool p) {
    const portkern_groups::mask_t yes = __ballot(p) & g.mask_;
    return coalesced_group(p ? yes : g.mask_ & ~yes);
}

template <unsigned Size, class Parent = void>
class thread_block_tile : public thread_group {
    static_assert(Size && !(Size & (Size - 1)) && Size <= 64, "a tile has 1, 2, 4 … 64 threads");
    __device__ thread_block_tile() : thread_group(cg_tiled_group, Size, 0, Size) {}
    template <unsigned N, class P> friend __device__ thread_block_tile<N, P> tiled_partition(const P&);
    __device__ static unsigned first_lane() { return portkern_groups::lane() & ~(Size - 1); }
    __device__ static portkern_groups::mask_t mask() {
        return (Size == 64 ? ~0ull : (1ull << (Size & 63)) - 1) << first_lane();
    }

  public:
    template <class P> __device__ thread_block_tile(const thread_block_tile<Size, P>&) : thread_block_tile() {}
    static constexpr __device__ unsigned size() { return Size; }
    static constexpr __device__ unsigned num_threads() { return Size; }
    __device__ unsigned thread_rank() const { return portkern_groups::rank_in_block() & (Size - 1); }
    __device__ unsigned meta_group_rank() const { return portkern_groups::rank_in_block() / Size; }
    __device__ unsigned meta_group_size() const {
        return (portkern_groups::threads_of_block() + Size - 1) / Size;
    }
    __device__ void sync() const { portkern_groups::sync_wave(); }
    template <typename T> __device__ T shfl(T v, int rank) const { return __shfl(v, rank, Size); }
    template <typename T> __device__ T shfl_down(T v, unsigned delta) const { return __shfl_down(v, delta, Size); }
    template <typename T> __device__ T shfl_up(T v, unsigned delta) const { return __shfl_up(v, delta, Size); }
    template <typename T> __device__ T shfl_xor(T v, unsigned mask) const { return __shfl_xor(v, mask, Size); }
    __device__ portkern_groups::mask_t ballot(int p) const { return (__ballot(p) & mask()) >> first_lane(); }
    __device__ int any(int p) const { return (__ballot(p) & mask()) != 0; }
    __device__ int all(int p) const { return (__ballot(!p) & mask()) == 0; }
};

template <unsigned Size, class Parent>
__device__ thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
    return thread_block_tile<Size, Parent>();
}
__device__ inline thread_group tiled_partition(const thread_group&, unsigned size) {
    return thread_group(cg_tiled_group, size, 0, size);
}

template <class Group> __device__ void sync(const Group& g) { g.sync(); }
template <class Group> __device__ unsigned thread_rank(const Group& g) { return g.thread_rank(); }
template <class Group> __device__ unsigned group_size(const Group& g) { return g.size(); }
template <class Group> __device__ bool is_valid(const Group& g) { return g.is_valid(); }
}  // namespace cooperative_groups
