// Shapes by value, made of tensors.
#pragma once
#include <limits>

#include "TensorInfo.cuh"

namespace at::cuda::detail {

inline bool canUse32BitIndexMath(const Tensor& t, int64_t most = INT32_MAX) {
    int64_t last = 0;
    for (int d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
    return t.numel() < most && last < most;
}
template <class T, class Index>
TensorInfo<T, Index> getTensorInfo(const Tensor& t) {
    Index sizes[MAX_TENSORINFO_DIMS], strides[MAX_TENSORINFO_DIMS];
    for (int d = 0; d < t.dim(); ++d) {
        sizes[d] = (Index)t.size(d);
        strides[d] = (Index)t.stride(d);
    }
    return {t.template data_ptr<std::remove_const_t<T>>(), (int)t.dim(), sizes, strides};
}

}  // namespace at::cuda::detail
