// Loops of the host, in one thread.
#pragma once
#include <cstdint>

namespace at {

template <class F>
inline void parallel_for(int64_t begin, int64_t end, int64_t, const F& f) {
    if (begin < end) f(begin, end);
}
inline int get_num_threads() { return 1; }
inline int get_thread_num() { return 0; }
inline bool in_parallel_region() { return false; }
namespace internal {
constexpr int64_t GRAIN_SIZE = 32768;
}  // namespace internal

}  // namespace at
