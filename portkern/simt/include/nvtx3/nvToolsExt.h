// NVTX marks ranges for a profiler; there is none here, as on a device without one.
#pragma once
#include <cstdint>

typedef uint64_t nvtxRangeId_t;
static inline int nvtxRangePushA(const char*) { return 0; }
static inline int nvtxRangePop() { return 0; }
static inline void nvtxMarkA(const char*) {}
static inline nvtxRangeId_t nvtxRangeStartA(const char*) { return 0; }
static inline void nvtxRangeEnd(nvtxRangeId_t) {}
#define nvtxRangePush nvtxRangePushA
#define nvtxMark nvtxMarkA
#define nvtxRangeStart nvtxRangeStartA
