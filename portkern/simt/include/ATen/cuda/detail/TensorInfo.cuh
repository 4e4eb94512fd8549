// A tensor's shape by value, as kernels are given it.
#pragma once
#include "../../core/Tensor.h"

#define MAX_TENSORINFO_DIMS 25

namespace at::cuda::detail {

template <class T, class Index>
struct TensorInfo {
    TensorInfo() : data(nullptr), dims(0) {}
    TensorInfo(T* p, int dim, const Index* size, const Index* stride) : data(p), dims(dim) {
        TORCH_CHECK(dim < MAX_TENSORINFO_DIMS, "CUDA Tensors cannot have more than 25 dimensions");
        for (int d = 0; d < dim; ++d) {
            sizes[d] = size[d];
            strides[d] = stride[d];
        }
    }
    __host__ __device__ bool isContiguous() const { return dims == 1 && strides[0] == 1; }
    void reduceDim(int d) { sizes[d] = 1; }

    T* data;
    Index sizes[MAX_TENSORINFO_DIMS];
    Index strides[MAX_TENSORINFO_DIMS];
    int dims;
};

// The place of the element with this number, in the order of the sizes; Dims is -1 where the number
// of dimensions is only known as it runs.
template <class T, class Index, int Dims>
struct IndexToOffset {
    static __host__ __device__ Index get(Index number, const TensorInfo<T, Index>& info) {
        const int last = (Dims < 0 ? info.dims : Dims) - 1;
        Index place = 0;
        for (int d = last; d > 0; --d) {
            place += number % info.sizes[d] * info.strides[d];
            number /= info.sizes[d];
        }
        return place + number * info.strides[0];
    }
};

}  // namespace at::cuda::detail
