#pragma once
#define C10_HOST_DEVICE
#define C10_DEVICE
#define C10_HOST
#define C10_LAUNCH_BOUNDS_0
#define C10_LAUNCH_BOUNDS_1(...)
#define C10_LAUNCH_BOUNDS_2(...)
#define C10_LIKELY(x) (__builtin_expect(static_cast<bool>(x), 1))
#define C10_UNLIKELY(x) (__builtin_expect(static_cast<bool>(x), 0))
#define C10_ALWAYS_INLINE inline
#define C10_RESTRICT __restrict
#define C10_UNUSED __attribute__((unused))
#define CUDA_KERNEL_ASSERT(holds) assert(holds)
#define CUDA_KERNEL_ASSERT_MSG(holds, ...) assert(holds)
#define CUDA_KERNEL_ASSERT_PRINTF(holds, ...) assert(holds)
// Constants, as PyTorch has them: of AMD's the one that the target has.
#if defined(__AMDGCN_WAVEFRONT_SIZE)
#define C10_WARP_SIZE __AMDGCN_WAVEFRONT_SIZE
#else
#define C10_WARP_SIZE (SIMT_HIP ? 64 : 32)
#endif
#define C10_WARP_SIZE_LOWER_BOUND C10_WARP_SIZE
#define C10_WARP_SIZE_UPPER_BOUND C10_WARP_SIZE
namespace c10 {}
namespace at {
using namespace c10;
}  // namespace at
