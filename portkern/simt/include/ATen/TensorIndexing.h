// t.index({…}): numbers, slices and None give views, tensors PyTorch's own gather.
#pragma once
#include <optional>
#include <vector>

#include "core/Tensor.h"

namespace at::indexing {

enum class EllipsisIndexType { Ellipsis };
constexpr EllipsisIndexType Ellipsis = EllipsisIndexType::Ellipsis;
constexpr std::nullopt_t None = std::nullopt;

struct Slice {
    std::optional<int64_t> from, to, step;
    Slice(std::optional<int64_t> from = std::nullopt, std::optional<int64_t> to = std::nullopt,
          std::optional<int64_t> step = std::nullopt)
        : from(from), to(to), step(step) {}
};

struct TensorIndex {
    enum Kind { none, all, number, slice, tensor } kind;
    int64_t at = 0;
    Slice part;
    Tensor of;
    TensorIndex(std::nullopt_t) : kind(none) {}
    TensorIndex(EllipsisIndexType) : kind(all) {}
    TensorIndex(const char*) : kind(all) {}
    template <class T, std::enable_if_t<std::is_integral<T>::value, int> = 0>
    TensorIndex(T i) : kind(number), at((int64_t)i) {}
    TensorIndex(Slice s) : kind(slice), part(s) {}
    TensorIndex(Tensor t) : kind(tensor), of(std::move(t)) {}
};

struct Indexed {
    Tensor view;
    std::vector<std::optional<Tensor>> by;  // one for each dimension, none where all of it is meant
    bool gathers = false;
};
inline Indexed seen(Tensor t, ArrayRef<TensorIndex> indices) {
    int64_t named = 0, d = 0;
    for (const TensorIndex& i : indices) named += i.kind != TensorIndex::none && i.kind != TensorIndex::all;
    Indexed out;
    for (const TensorIndex& i : indices) {
        switch (i.kind) {
            case TensorIndex::none: t = t.unsqueeze(d++); out.by.emplace_back(); break;
            case TensorIndex::all:
                for (int64_t left = t.dim() - d - named; left > 0; --left, ++d) out.by.emplace_back();
                break;
            case TensorIndex::number: t = t.select(d, i.at); --named; break;
            case TensorIndex::slice:
                t = t.slice(d++, i.part.from, i.part.to, i.part.step.value_or(1));
                out.by.emplace_back();
                --named;
                break;
            case TensorIndex::tensor:
                out.by.emplace_back(i.of);
                out.gathers = true;
                ++d;
                --named;
        }
    }
    out.view = t;
    return out;
}

}  // namespace at::indexing

namespace at {
inline Tensor Tensor::index(std::initializer_list<indexing::TensorIndex> indices) const {
    const indexing::Indexed known = indexing::seen(*this, indices);
    return known.gathers ? simt::lite::delegated<Tensor>("index", known.view, known.by) : known.view;
}
inline Tensor Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices,
                                 const Tensor& value) {
    const indexing::Indexed known = indexing::seen(*this, indices);
    if (known.gathers) simt::lite::delegated<Tensor>("index_put_", known.view, known.by, value);
    else Tensor(known.view).copy_(value);
    return *this;
}
inline Tensor Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices,
                                 const Scalar& value) {
    return index_put_(indices, full({}, value, options()));
}
}  // namespace at
