// Element access by indices, on the host and in kernels.
#pragma once
#include <cstddef>
#include <cstdint>

namespace at {

template <class T>
struct DefaultPtrTraits {
    using PtrType = T*;
};
template <class T>
struct RestrictPtrTraits {
    using PtrType = T* __restrict__;
};

// One dimension off per []: the sizes and strides belong to whoever made the first.
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits,
          class Index = int64_t>
class TensorAccessor {
  public:
    using PtrType = typename Traits<T>::PtrType;
    TensorAccessor(PtrType data, const Index* sizes, const Index* strides)
        : data_(data), sizes_(sizes), strides_(strides) {}
    decltype(auto) operator[](Index i) const {
        if constexpr (N == 1) return (data_[i * strides_[0]]);
        else
            return TensorAccessor<T, N - 1, Traits, Index>(data_ + i * strides_[0], sizes_ + 1,
                                                           strides_ + 1);
    }
    Index size(Index i) const { return sizes_[i]; }
    Index stride(Index i) const { return strides_[i]; }
    PtrType data() const { return data_; }

  private:
    PtrType data_;
    const Index *sizes_, *strides_;
};

// Carries its sizes and strides, so that it can be a kernel's argument.
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits,
          class Index = int64_t>
class GenericPackedTensorAccessor {
  public:
    using PtrType = typename Traits<T>::PtrType;
    template <class Length>  // that of a Tensor, or the accessor's own
    GenericPackedTensorAccessor(PtrType data, const Length* sizes, const Length* strides)
        : data_(data) {
        for (size_t i = 0; i < N; ++i) {
            sizes_[i] = (Index)sizes[i];
            strides_[i] = (Index)strides[i];
        }
    }
    decltype(auto) operator[](Index i) const {
        if constexpr (N == 1) return (data_[i * strides_[0]]);
        else
            return TensorAccessor<T, N - 1, Traits, Index>(data_ + i * strides_[0], sizes_ + 1,
                                                           strides_ + 1);
    }
    Index size(Index i) const { return sizes_[i]; }
    Index stride(Index i) const { return strides_[i]; }
    PtrType data() const { return data_; }

  private:
    PtrType data_;
    Index sizes_[N], strides_[N];
};

template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Traits, int32_t>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Traits, int64_t>;
// Its old name.
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits,
          class Index = int64_t>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, Traits, Index>;

}  // namespace at
