// Device attributes whose values are known: X(CUDA's name, number, HIP's name, number).
#pragma once

#define SIMT_ATTRIBUTES(X)                                                                        \
    X(MaxThreadsPerBlock, 1, MaxThreadsPerBlock, 56)                                              \
    X(MaxBlockDimX, 2, MaxBlockDimX, 26)                                                          \
    X(MaxBlockDimY, 3, MaxBlockDimY, 27)                                                          \
    X(MaxBlockDimZ, 4, MaxBlockDimZ, 28)                                                          \
    X(MaxGridDimX, 5, MaxGridDimX, 29)                                                            \
    X(MaxGridDimY, 6, MaxGridDimY, 30)                                                            \
    X(MaxGridDimZ, 7, MaxGridDimZ, 31)                                                            \
    X(MaxSharedMemoryPerBlock, 8, MaxSharedMemoryPerBlock, 74)                                    \
    X(TotalConstantMemory, 9, TotalConstantMemory, 83)                                            \
    X(WarpSize, 10, WarpSize, 87)                                                                 \
    X(MaxPitch, 11, MaxPitch, 58)                                                                 \
    X(MaxRegistersPerBlock, 12, MaxRegistersPerBlock, 71)                                         \
    X(ClockRate, 13, ClockRate, 5)                                                                \
    X(GpuOverlap, 15, GpuOverlap, 10015)                                                          \
    X(MultiProcessorCount, 16, MultiprocessorCount, 63)                                           \
    X(KernelExecTimeout, 17, KernelExecTimeout, 18)                                               \
    X(Integrated, 18, Integrated, 16)                                                             \
    X(CanMapHostMemory, 19, CanMapHostMemory, 3)                                                  \
    X(ComputeMode, 20, ComputeMode, 6)                                                            \
    X(ConcurrentKernels, 31, ConcurrentKernels, 8)                                                \
    X(L2CacheSize, 38, L2CacheSize, 19)                                                           \
    X(MaxThreadsPerMultiProcessor, 39, MaxThreadsPerMultiProcessor, 57)                           \
    X(AsyncEngineCount, 40, AsyncEngineCount, 2)                                                  \
    X(UnifiedAddressing, 41, UnifiedAddressing, 85)                                               \
    X(ComputeCapabilityMajor, 75, ComputeCapabilityMajor, 23)                                     \
    X(ComputeCapabilityMinor, 76, ComputeCapabilityMinor, 61)                                     \
    X(StreamPrioritiesSupported, 78, StreamPrioritiesSupported, 78)                               \
    X(MaxSharedMemoryPerMultiprocessor, 81, SharedMemPerMultiprocessor, 76)                       \
    X(MaxRegistersPerMultiprocessor, 82, MaxRegistersPerMultiprocessor, 72)                       \
    X(ManagedMemory, 83, ManagedMemory, 24)                                                       \
    X(IsMultiGpuBoard, 84, IsMultiGpuBoard, 17)                                                   \
    X(HostNativeAtomicSupported, 86, HostNativeAtomicSupported, 15)                               \
    X(PageableMemoryAccess, 88, PageableMemoryAccess, 65)                                         \
    X(ConcurrentManagedAccess, 89, ConcurrentManagedAccess, 9)                                    \
    X(CooperativeLaunch, 95, CooperativeLaunch, 10)                                               \
    X(MaxSharedMemoryPerBlockOptin, 97, SharedMemPerBlockOptin, 75)                               \
    X(HostRegisterSupported, 99, HostRegisterSupported, 90)                                       \
    X(MaxBlocksPerMultiprocessor, 106, MaxBlocksPerMultiProcessor, 25)                            \
    X(ReservedSharedMemoryPerBlock, 111, ReservedSharedMemPerBlock, 73)                           \
    X(MemoryPoolsSupported, 115, MemoryPoolsSupported, 88)

// Memory's clock and bus have no bearing on a CPU: asking for them is answered NotSupported.
#define SIMT_UNKNOWN_ATTRIBUTES(X)                                                                \
    X(MemoryClockRate, 36, MemoryClockRate, 60)                                                   \
    X(GlobalMemoryBusWidth, 37, MemoryBusWidth, 59)
