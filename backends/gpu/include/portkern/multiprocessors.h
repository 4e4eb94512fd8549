// How many multiprocessors the current GPU has.
#pragma once
#include <portkern/portable.h>

inline int multiprocessors() {
    int device = 0, count = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
}
