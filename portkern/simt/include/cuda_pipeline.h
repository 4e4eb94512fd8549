// nvcuda::experimental::pipeline, on the primitives.
#pragma once
#include "simt/cuda_only.h"
#include "cuda_pipeline_primitives.h"

namespace nvcuda {
namespace experimental {

class pipeline {
public:
    pipeline() = default;
    pipeline(const pipeline&) = delete;
    pipeline& operator=(const pipeline&) = delete;

    size_t commit() {
        __pipeline_commit();
        return batch_++;
    }
    void commit_and_wait() {
        commit();
        wait_prior<0>();
    }
    void wait(size_t batch) { __pipeline_wait_prior(batch_ > batch ? batch_ - batch : 0); }
    template <unsigned N>
    void wait_prior() {
        __pipeline_wait_prior(N);
    }

private:
    size_t batch_ = 0;
};

template <size_t N, class T>
static inline auto segment(T* p) -> T (*)[N] {
    return (T(*)[N])p;
}

// What cp.async cannot copy in one piece is copied at once.
template <class T>
static inline void memcpy_async(T& to, const T& from, pipeline&, SIMT_AT) {
    constexpr size_t size = sizeof(T), align = alignof(T);
    constexpr size_t piece = align >= 16 && size % 16 == 0  ? 16
                             : align >= 8 && size % 8 == 0 ? 8
                             : align >= 4 && size % 4 == 0 ? 4
                                                           : 0;
    if constexpr (!__is_trivially_copyable(T) || piece == 0) {
        to = from;
    } else {
        for (size_t i = 0; i < size; i += piece)
            __pipeline_memcpy_async((char*)&to + i, (const char*)&from + i, piece, 0, at);
    }
}
// Elements beyond the source's are zeros.
template <class T, size_t TO, size_t FROM>
static inline void memcpy_async(T (*to)[TO], const T (*from)[FROM], pipeline&, SIMT_AT) {
    constexpr size_t size = sizeof(*to);
    static_assert(size == 4 || size == 8 || size == 16, "4, 8 or 16 bytes are copied");
    static_assert(FROM <= TO, "the source is no larger than the destination");
    __pipeline_memcpy_async(to, from, size, size - sizeof(*from), at);
}

}  // namespace experimental
}  // namespace nvcuda
