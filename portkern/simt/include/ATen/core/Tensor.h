// at::Tensor: shape, memory and the few operations that extensions use around their kernels. The
// work is the runtime's; there are no gradients. What is not here does not compile.
#pragma once
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../c10/core/Scalar.h"
#include "../../c10/core/TensorOptions.h"
#include "../../c10/util/ArrayRef.h"
#include "../../simt/lite.h"
#include "TensorAccessor.h"

namespace simt::lite {
template <class T, class = void>
struct Convert;  // no member: such a parameter or result has no Python type here
template <class R, class... A>
R delegated(const char* operation, const A&... given);
}  // namespace simt::lite

namespace at {
using namespace c10;
namespace indexing {
struct TensorIndex;
}  // namespace indexing

class Tensor {
    using Impl = simt::lite::Impl;
    using Operation = simt::lite::Operation;
    using Reduction = simt::lite::Reduction;

  public:
    Tensor() = default;
    Tensor(const Tensor& t) : impl_(t.impl_) { simt::lite::retain(impl_); }
    Tensor(Tensor&& t) noexcept : impl_(std::exchange(t.impl_, nullptr)) {}
    Tensor& operator=(Tensor t) noexcept {
        std::swap(impl_, t.impl_);
        return *this;
    }
    ~Tensor() { if (impl_) simt::lite::release(impl_); }
    // Takes a reference over; null is what the runtime failed with.
    static Tensor owning(Impl* made) {
        if (!made) c10::detail::fail_as_told();
        Tensor t;
        t.impl_ = made;
        return t;
    }
    Impl* unsafeGetTensorImpl() const { return impl_; }

    // ---- what it is

    bool defined() const { return impl_; }
    int64_t dim() const { return self().dims; }
    int64_t ndimension() const { return dim(); }
    IntArrayRef sizes() const { return {self().sizes, (size_t)self().dims}; }
    IntArrayRef strides() const { return {self().strides, (size_t)self().dims}; }
    int64_t size(int64_t d) const { return self().sizes[wrap(d)]; }
    int64_t stride(int64_t d) const { return self().strides[wrap(d)]; }
    int64_t numel() const {
        int64_t n = 1;
        for (int d = 0; d < self().dims; ++d) n *= impl_->sizes[d];
        return n;
    }
    int64_t storage_offset() const { return self().offset; }
    ScalarType scalar_type() const { return (ScalarType)self().dtype; }
    caffe2::TypeMeta dtype() const { return scalar_type(); }
    int64_t element_size() const { return (int64_t)elementSize(scalar_type()); }
    int64_t itemsize() const { return element_size(); }
    size_t nbytes() const { return (size_t)(numel() * element_size()); }
    Device device() const { return is_cuda() ? Device(kCUDA, 0) : Device(kCPU); }
    int64_t get_device() const { return is_cuda() ? 0 : -1; }
    bool is_cuda() const { return self().storage->device; }
    bool is_cpu() const { return !is_cuda(); }
    bool is_hip() const { return false; }
    bool is_floating_point() const { return isFloatingType(scalar_type()); }
    bool requires_grad() const { return false; }
    bool is_neg() const { return false; }
    bool is_conj() const { return false; }
    Tensor _fw_grad(uint64_t) const { return {}; }
    bool is_same(const Tensor& t) const { return impl_ == t.impl_; }
    TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }
    Layout layout() const { return kStrided; }
    MemoryFormat suggest_memory_format() const { return MemoryFormat::Contiguous; }
    bool is_contiguous(MemoryFormat = MemoryFormat::Contiguous) const {
        return simt::lite::is_contiguous(&self());
    }

    // ---- its elements

    void* data_ptr() const {
        if (!numel()) return nullptr;
        return impl_->storage->data + impl_->offset * element_size();
    }
    template <class T>
    T* data_ptr() const {
        check_type(CppTypeToScalarType<std::remove_const_t<T>>::value);
        return static_cast<T*>(data_ptr());
    }
    template <class T>
    const T* const_data_ptr() const { return data_ptr<T>(); }
    template <class T>
    T* mutable_data_ptr() const { return data_ptr<T>(); }
    const void* const_data_ptr() const { return data_ptr(); }
    void* mutable_data_ptr() const { return data_ptr(); }
    template <class T>
    T* data() const { return data_ptr<T>(); }

    template <class T, size_t N>
    TensorAccessor<T, N> accessor() const {
        check_dims(N);
        return {data_ptr<T>(), impl_->sizes, impl_->strides};
    }
    template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
    PackedTensorAccessor32<T, N, Traits> packed_accessor32() const {
        check_dims(N);
        return {data_ptr<T>(), impl_->sizes, impl_->strides};
    }
    template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
    PackedTensorAccessor64<T, N, Traits> packed_accessor64() const {
        return packed_accessor<T, N, Traits>();
    }
    template <class T, size_t N, template <class> class Traits = DefaultPtrTraits,
              class Index = int64_t>
    PackedTensorAccessor<T, N, Traits, Index> packed_accessor() const {
        check_dims(N);
        return {data_ptr<T>(), impl_->sizes, impl_->strides};
    }

    Scalar item() const {
        if (numel() != 1) c10::detail::fail("", "only a Tensor of one element has an item()");
        return Scalar(simt::lite::read(impl_, 0));
    }
    template <class T>
    T item() const { return item().to<T>(); }

    // ---- the same elements, seen otherwise

    Tensor as_strided(IntArrayRef sizes, IntArrayRef strides) const {
        return as_strided(sizes, strides, self().offset);
    }
    Tensor as_strided(IntArrayRef sizes, IntArrayRef strides, int64_t offset) const {
        if (sizes.size() != strides.size()) c10::detail::fail("", "as_strided: sizes and strides");
        return owning(simt::lite::as_strided(&self(), (int)sizes.size(), sizes.data(),
                                             strides.data(), offset));
    }
    Tensor view(IntArrayRef to) const { return shaped(to, false); }
    Tensor reshape(IntArrayRef to) const { return shaped(to, true); }
    Tensor view_as(const Tensor& t) const { return view(t.sizes()); }
    Tensor reshape_as(const Tensor& t) const { return reshape(t.sizes()); }
    Tensor flatten(int64_t from = 0, int64_t to = -1) const {
        return owning(simt::lite::flatten(&self(), from, to));
    }
    Tensor permute(IntArrayRef order) const {
        return owning(simt::lite::permute(&self(), (int)order.size(), order.data()));
    }
    Tensor transpose(int64_t a, int64_t b) const {
        return owning(simt::lite::transpose(&self(), a, b));
    }
    Tensor t() const {
        if (dim() > 2) c10::detail::fail("", "t() expects a tensor with <= 2 dimensions");
        return dim() == 2 ? transpose(0, 1) : *this;
    }
    Tensor unsqueeze(int64_t d) const { return owning(simt::lite::unsqueeze(&self(), d)); }
    Tensor squeeze() const { return owning(simt::lite::squeeze_all(&self())); }
    Tensor squeeze(int64_t d) const { return owning(simt::lite::squeeze(&self(), d)); }
    Tensor expand(IntArrayRef to) const {
        return owning(simt::lite::expand(&self(), (int)to.size(), to.data()));
    }
    Tensor expand_as(const Tensor& t) const { return expand(t.sizes()); }
    Tensor select(int64_t d, int64_t index) const {
        return owning(simt::lite::select(&self(), d, index));
    }
    Tensor operator[](int64_t index) const { return select(0, index); }
    Tensor slice(int64_t d, std::optional<int64_t> from = std::nullopt,
                 std::optional<int64_t> to = std::nullopt, int64_t step = 1) const {
        return owning(
            simt::lite::slice(&self(), d, from.value_or(0), to.value_or(INT64_MAX), step));
    }
    Tensor narrow(int64_t d, int64_t from, int64_t length) const {
        if (from < 0 || length < 0 || from + length > size(d))
            c10::detail::fail<IndexError>("", "narrow: out of range");
        return slice(d, from, from + length);
    }
    Tensor detach() const { return *this; }

    // ---- copies

    Tensor clone() const { return converted(scalar_type(), is_cuda()); }
    Tensor contiguous(MemoryFormat = MemoryFormat::Contiguous) const {
        return is_contiguous() ? *this : clone();
    }
    Tensor to(ScalarType type, bool = false, bool copy = false) const {
        return type == scalar_type() && !copy ? *this : converted(type, is_cuda());
    }
    Tensor to(Device where, bool = false, bool copy = false) const {
        return where.is_cuda() == is_cuda() && !copy ? *this
                                                     : converted(scalar_type(), where.is_cuda());
    }
    Tensor to(DeviceType where) const { return to(Device(where)); }
    Tensor to(const TensorOptions& o) const { return to(o.dtype().toScalarType()).to(o.device()); }
    Tensor to(Device where, ScalarType type) const { return to(type).to(where); }
    Tensor type_as(const Tensor& t) const { return to(t.options()); }
    Tensor toType(ScalarType type) const { return to(type); }
    Tensor cpu() const { return to(Device(kCPU)); }
    Tensor cuda() const { return to(Device(kCUDA)); }
    Tensor& copy_(const Tensor& from, bool = false) {
        if (!simt::lite::assign(&self(), &from.self())) c10::detail::fail_as_told();
        return *this;
    }
    Tensor& fill_(const Scalar& value) {
        simt::lite::fill(&self(), value.number());
        return *this;
    }
    Tensor& zero_() { return fill_(0); }

    // ---- sums and extremes, sorting

    Tensor sum() const { return reduced(Reduction::sum, sum_type()); }
    Tensor sum(ScalarType type) const { return reduced(Reduction::sum, type); }
    Tensor sum(int64_t d, bool keep = false) const {
        return reduced(Reduction::sum, sum_type(), d, keep);
    }
    Tensor mean() const { return reduced(Reduction::mean, scalar_type()); }
    Tensor mean(int64_t d, bool keep = false) const {
        return reduced(Reduction::mean, scalar_type(), d, keep);
    }
    Tensor max() const { return reduced(Reduction::largest, scalar_type()); }
    Tensor min() const { return reduced(Reduction::smallest, scalar_type()); }
    Tensor amax(int64_t d, bool keep = false) const {
        return reduced(Reduction::largest, scalar_type(), d, keep);
    }
    Tensor amin(int64_t d, bool keep = false) const {
        return reduced(Reduction::smallest, scalar_type(), d, keep);
    }
    std::tuple<Tensor, Tensor> max(int64_t d, bool keep = false) const {
        return extremes(Reduction::largest, d, keep);
    }
    std::tuple<Tensor, Tensor> min(int64_t d, bool keep = false) const {
        return extremes(Reduction::smallest, d, keep);
    }
    Tensor argsort(int64_t d = -1, bool descending = false) const {
        return owning(simt::lite::sorted_order(&self(), d, descending));
    }
    std::tuple<Tensor, Tensor> sort(int64_t d = -1, bool descending = false) const {
        Tensor order = argsort(d, descending);
        return {gather(d, order), order};
    }
    std::tuple<Tensor, Tensor> sort(std::optional<bool>, int64_t d, bool descending) const {
        return sort(d, descending);
    }
    Tensor gather(int64_t d, const Tensor& index) const {
        return owning(simt::lite::gather(&self(), d, &index.self()));
    }
    Tensor index_select(int64_t d, const Tensor& rows) const {
        return owning(simt::lite::index_select(&self(), d, &rows.self()));
    }

    // ---- arithmetic, with broadcasting

    friend Tensor operator+(const Tensor& a, const Tensor& b) {
        return combined(Operation::add, a, b);
    }
    friend Tensor operator-(const Tensor& a, const Tensor& b) {
        return combined(Operation::subtract, a, b);
    }
    friend Tensor operator*(const Tensor& a, const Tensor& b) {
        return combined(Operation::multiply, a, b);
    }
    friend Tensor operator/(const Tensor& a, const Tensor& b) {
        return combined(Operation::divide, a, b);
    }
    friend Tensor operator+(const Tensor& a, const Scalar& b) {
        return combined(Operation::add, a, b, false);
    }
    friend Tensor operator-(const Tensor& a, const Scalar& b) {
        return combined(Operation::subtract, a, b, false);
    }
    friend Tensor operator*(const Tensor& a, const Scalar& b) {
        return combined(Operation::multiply, a, b, false);
    }
    friend Tensor operator/(const Tensor& a, const Scalar& b) {
        return combined(Operation::divide, a, b, false);
    }
    friend Tensor operator+(const Scalar& a, const Tensor& b) {
        return combined(Operation::add, b, a, true);
    }
    friend Tensor operator-(const Scalar& a, const Tensor& b) {
        return combined(Operation::subtract, b, a, true);
    }
    friend Tensor operator*(const Scalar& a, const Tensor& b) {
        return combined(Operation::multiply, b, a, true);
    }
    friend Tensor operator/(const Scalar& a, const Tensor& b) {
        return combined(Operation::divide, b, a, true);
    }
    Tensor operator-() const { return combined(Operation::subtract, *this, 0, true); }
    template <class T>
    Tensor& operator+=(const T& b) { return copy_(*this + b); }
    template <class T>
    Tensor& operator-=(const T& b) { return copy_(*this - b); }
    template <class T>
    Tensor& operator*=(const T& b) { return copy_(*this * b); }
    template <class T>
    Tensor& operator/=(const T& b) { return copy_(*this / b); }
    template <class T>
    Tensor add(const T& b) const { return *this + b; }
    template <class T>
    Tensor sub(const T& b) const { return *this - b; }
    template <class T>
    Tensor mul(const T& b) const { return *this * b; }
    template <class T>
    Tensor div(const T& b) const { return *this / b; }
    template <class T>
    Tensor& add_(const T& b) { return *this += b; }
    template <class T>
    Tensor& sub_(const T& b) { return *this -= b; }
    template <class T>
    Tensor& mul_(const T& b) { return *this *= b; }
    template <class T>
    Tensor& div_(const T& b) { return *this /= b; }

    // ---- what PyTorch does

#define SIMT_COMPARISON(op, name)                                                                 \
    template <class T>                                                                            \
    friend Tensor operator op(const Tensor& a, const T& b) {                                      \
        return simt::lite::delegated<Tensor>(#name, a, b);                                        \
    }
    SIMT_COMPARISON(==, eq)
    SIMT_COMPARISON(!=, ne)
    SIMT_COMPARISON(<, lt)
    SIMT_COMPARISON(<=, le)
    SIMT_COMPARISON(>, gt)
    SIMT_COMPARISON(>=, ge)
    SIMT_COMPARISON(&, bitwise_and)
    SIMT_COMPARISON(|, bitwise_or)
    SIMT_COMPARISON(^, bitwise_xor)
#undef SIMT_COMPARISON
    Tensor operator~() const { return bitwise_not(); }
    Tensor index(std::initializer_list<indexing::TensorIndex> indices) const;
    Tensor index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value);
    Tensor index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value);
    Tensor index(const std::vector<std::optional<Tensor>>& by) const {
        return simt::lite::delegated<Tensor>("index", *this, by);
    }

    Tensor sum(IntArrayRef dims, bool keep = false,
               std::optional<ScalarType> type = std::nullopt) const {
        return simt::lite::delegated<Tensor>("sum", *this, dims, keep, type);
    }
    Tensor mean(IntArrayRef dims, bool keep = false,
                std::optional<ScalarType> type = std::nullopt) const {
        return simt::lite::delegated<Tensor>("mean", *this, dims, keep, type);
    }
    Tensor max(const Tensor& b) const { return maximum(b); }
    Tensor min(const Tensor& b) const { return minimum(b); }
    Tensor div(const Tensor& b, const char* rounding) const {
        return simt::lite::delegated<Tensor>("div", *this, b, rounding);
    }
    Tensor div_(const Tensor& b, const char* rounding) {
        return simt::lite::delegated<Tensor>("div_", *this, b, rounding);
    }
#define SIMT_OPERATION(name)                                                                      \
    template <class... A>                                                                         \
    Tensor name(const A&... given) const {                                                        \
        return simt::lite::delegated<Tensor>(#name, *this, given...);                             \
    }                                                                                             \
    template <class... A>                                                                         \
    Tensor name(IntArrayRef first, const A&... given) const {                                     \
        return simt::lite::delegated<Tensor>(#name, *this, first, given...);                      \
    }
#define SIMT_SEVERAL(name, ...)                                                                   \
    template <class... A>                                                                         \
    __VA_ARGS__ name(const A&... given) const {                                                   \
        return simt::lite::delegated<__VA_ARGS__>(#name, *this, given...);                             \
    }
#define SIMT_PAIR std::tuple<Tensor, Tensor>
#include "operations.inc"
#undef SIMT_PAIR
#undef SIMT_OPERATION
#undef SIMT_SEVERAL

  private:
    Impl& self() const {
        if (!impl_) c10::detail::fail("", "the tensor is undefined");
        return *impl_;
    }
    int wrap(int64_t d) const {
        const int64_t n = dim() ? dim() : 1;
        if (d < -n || d >= n) c10::detail::fail<IndexError>("", "Dimension out of range");
        return (int)(d < 0 ? d + n : d);
    }
    void check_dims(size_t n) const {
        if ((size_t)dim() != n) c10::detail::fail("", "an accessor of other dimensions");
    }
    void check_type(ScalarType wanted) const {
        if (scalar_type() != wanted) wrong_type(wanted);
    }
    [[noreturn]] __attribute__((noinline, cold)) void wrong_type(ScalarType wanted) const {
        c10::detail::fail("", (std::string("expected scalar type ") + toString(wanted) +
                               " but found " + toString(scalar_type())).c_str());
    }
    Tensor shaped(IntArrayRef to, bool may_copy) const {
        return owning(simt::lite::reshape(&self(), (int)to.size(), to.data(), may_copy));
    }
    Tensor converted(ScalarType type, bool device) const {
        return owning(simt::lite::convert(&self(), (int)type, device));
    }
    ScalarType sum_type() const {
        return isIntegralType(scalar_type(), true) ? kLong : scalar_type();
    }
    Tensor reduced(Reduction how, ScalarType type) const {
        return owning(simt::lite::reduce_all(how, &self(), (int)type));
    }
    Tensor reduced(Reduction how, ScalarType type, int64_t d, bool keep) const {
        return owning(simt::lite::reduce(how, &self(), d, keep, (int)type, nullptr));
    }
    std::tuple<Tensor, Tensor> extremes(Reduction how, int64_t d, bool keep) const {
        Impl* where = nullptr;
        Tensor values =
            owning(simt::lite::reduce(how, &self(), d, keep, (int)scalar_type(), &where));
        return {values, owning(where)};
    }
    static Tensor combined(Operation op, const Tensor& a, const Tensor& b) {
        return owning(simt::lite::combine(op, &a.self(), &b.self()));
    }
    static Tensor combined(Operation op, const Tensor& t, const Scalar& s, bool reversed) {
        return owning(simt::lite::combine_number(op, &t.self(), s.number(), reversed));
    }

    Impl* impl_ = nullptr;
};

// Shape and type only: printing the elements is Python's.
inline std::ostream& operator<<(std::ostream& out, const Tensor& t) {
    if (!t.defined()) return out << "[ Tensor (undefined) ]";
    return out << "[ " << t.device() << " " << t.scalar_type() << " tensor of " << t.sizes()
               << " ]";
}

using TensorList = ArrayRef<Tensor>;

// ---- functions

inline Tensor empty(IntArrayRef sizes, TensorOptions o = {}, MemoryFormat = {}) {
    return Tensor::owning(simt::lite::make((int)o.dtype().toScalarType(), o.device().is_cuda(),
                                           (int)sizes.size(), sizes.data()));
}
// The memory stays the caller's: `deleter`, where there is one, is never called before the end.
inline Tensor from_blob(void* data, IntArrayRef sizes, TensorOptions o = {}) {
    return Tensor::owning(simt::lite::make_of(data, (int)o.dtype().toScalarType(),
                                              o.device().is_cuda(), (int)sizes.size(),
                                              sizes.data(), nullptr));
}
inline Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, TensorOptions o = {}) {
    TORCH_CHECK(sizes.size() == strides.size(), "from_blob: ", sizes.size(), " sizes and ",
                strides.size(), " strides");
    return Tensor::owning(simt::lite::make_of(data, (int)o.dtype().toScalarType(),
                                              o.device().is_cuda(), (int)sizes.size(),
                                              sizes.data(), strides.data()));
}
template <class Deleter, class = std::enable_if_t<std::is_invocable_v<Deleter, void*>>>
inline Tensor from_blob(void* data, IntArrayRef sizes, Deleter, TensorOptions o = {}) {
    return from_blob(data, sizes, o);
}
inline Tensor full(IntArrayRef sizes, const Scalar& value, TensorOptions o) {
    return empty(sizes, o).fill_(value);
}
inline Tensor full(IntArrayRef sizes, const Scalar& value) {
    return full(sizes, value, value.isFloatingPoint() ? kFloat : value.type());
}
inline Tensor zeros(IntArrayRef sizes, TensorOptions o = {}) { return full(sizes, 0, o); }
inline Tensor ones(IntArrayRef sizes, TensorOptions o = {}) { return full(sizes, 1, o); }
inline Tensor scalar_tensor(const Scalar& value, TensorOptions o = {}) {
    return full({}, value, o);
}
inline Tensor empty_like(const Tensor& t, TensorOptions o, MemoryFormat = {}) {
    if (!t.defined()) c10::detail::fail("", "the tensor is undefined");
    return Tensor::owning(simt::lite::make_like(t.unsafeGetTensorImpl(),
                                                (int)o.dtype().toScalarType(),
                                                o.device().is_cuda()));
}
inline Tensor empty_like(const Tensor& t) { return empty_like(t, t.options()); }
inline Tensor full_like(const Tensor& t, const Scalar& value) { return empty_like(t).fill_(value); }
inline Tensor zeros_like(const Tensor& t) { return full_like(t, 0); }
inline Tensor ones_like(const Tensor& t) { return full_like(t, 1); }
inline Tensor full_like(const Tensor& t, const Scalar& value, TensorOptions o) {
    return empty_like(t, o).fill_(value);
}
inline Tensor zeros_like(const Tensor& t, TensorOptions o) { return full_like(t, 0, o); }
inline Tensor ones_like(const Tensor& t, TensorOptions o) { return full_like(t, 1, o); }

inline Tensor arange(const Scalar& from, const Scalar& to, const Scalar& step, TensorOptions o) {
    return Tensor::owning(simt::lite::make_range(from.toDouble(), to.toDouble(), step.toDouble(),
                                                 (int)o.dtype().toScalarType(),
                                                 o.device().is_cuda()));
}
inline Tensor arange(const Scalar& from, const Scalar& to, TensorOptions o) {
    return arange(from, to, 1, o);
}
inline Tensor arange(const Scalar& to, TensorOptions o) { return arange(0, to, 1, o); }
inline Tensor arange(const Scalar& to) {
    return arange(0, to, 1, to.isFloatingPoint() ? kFloat : kLong);
}

template <class T>
inline Tensor tensor(ArrayRef<T> values, TensorOptions o) {
    Tensor t = empty({(int64_t)values.size()}, o);
    for (size_t i = 0; i < values.size(); ++i)
        simt::lite::write(t.unsafeGetTensorImpl(), (int64_t)i, Scalar(values[i]).number());
    return t;
}
template <class T>
inline Tensor tensor(ArrayRef<T> values) {
    return tensor(values, std::is_same<T, bool>::value      ? kBool
                          : std::is_integral<T>::value ? kLong
                                                       : kFloat);
}
template <class T>
inline Tensor tensor(const std::vector<T>& values, TensorOptions o) {
    return tensor(ArrayRef<T>(values), o);
}
template <class T>
inline Tensor tensor(const std::vector<T>& values) { return tensor(ArrayRef<T>(values)); }
template <class T>
inline Tensor tensor(std::initializer_list<T> values, TensorOptions o) {
    return tensor(ArrayRef<T>(values), o);
}
template <class T>
inline Tensor tensor(std::initializer_list<T> values) { return tensor(ArrayRef<T>(values)); }

inline Tensor sum(const Tensor& t) { return t.sum(); }
inline Tensor sum(const Tensor& t, int64_t d, bool keep = false) { return t.sum(d, keep); }
inline Tensor mean(const Tensor& t) { return t.mean(); }
inline Tensor mean(const Tensor& t, int64_t d, bool keep = false) { return t.mean(d, keep); }
inline Tensor max(const Tensor& t) { return t.max(); }
inline Tensor min(const Tensor& t) { return t.min(); }
inline Tensor amax(const Tensor& t, int64_t d, bool keep = false) { return t.amax(d, keep); }
inline Tensor amin(const Tensor& t, int64_t d, bool keep = false) { return t.amin(d, keep); }
inline std::tuple<Tensor, Tensor> max(const Tensor& t, int64_t d, bool keep = false) {
    return t.max(d, keep);
}
inline std::tuple<Tensor, Tensor> min(const Tensor& t, int64_t d, bool keep = false) {
    return t.min(d, keep);
}
inline std::tuple<Tensor, Tensor> sort(const Tensor& t, int64_t d = -1, bool descending = false) {
    return t.sort(d, descending);
}
inline Tensor argsort(const Tensor& t, int64_t d = -1, bool descending = false) {
    return t.argsort(d, descending);
}
template <class T>
inline Tensor add(const Tensor& a, const T& b) { return a + b; }
template <class T>
inline Tensor sub(const Tensor& a, const T& b) { return a - b; }
template <class T>
inline Tensor mul(const Tensor& a, const T& b) { return a * b; }
template <class T>
inline Tensor div(const Tensor& a, const T& b) { return a / b; }
inline Tensor cat(ArrayRef<Tensor> parts, int64_t d = 0) {
    std::vector<const simt::lite::Impl*> all;
    for (const Tensor& t : parts) all.push_back(t.unsafeGetTensorImpl());
    return Tensor::owning(simt::lite::concatenate(all.data(), (int64_t)all.size(), d));
}
inline Tensor stack(ArrayRef<Tensor> parts, int64_t d = 0) {
    std::vector<Tensor> raised;
    for (const Tensor& t : parts) raised.push_back(t.unsqueeze(d));
    return cat(raised, d);
}

#define SIMT_OPERATION(name)                                                                      \
    template <class... A>                                                                         \
    inline Tensor name(const Tensor& t, const A&... given) {                                      \
        return simt::lite::delegated<Tensor>(#name, t, given...);                                 \
    }                                                                                             \
    template <class... A>                                                                         \
    inline Tensor name(const Tensor& t, IntArrayRef first, const A&... given) {                   \
        return simt::lite::delegated<Tensor>(#name, t, first, given...);                          \
    }
#define SIMT_SEVERAL(name, ...)                                                                   \
    template <class... A>                                                                         \
    inline __VA_ARGS__ name(const Tensor& t, const A&... given) {                                 \
        return simt::lite::delegated<__VA_ARGS__>(#name, t, given...);                                 \
    }
#define SIMT_PAIR std::tuple<Tensor, Tensor>
#include "operations.inc"
#undef SIMT_PAIR
#undef SIMT_OPERATION
#undef SIMT_SEVERAL

inline Tensor max(const Tensor& a, const Tensor& b) { return a.max(b); }
inline Tensor min(const Tensor& a, const Tensor& b) { return a.min(b); }
inline Tensor sum(const Tensor& t, IntArrayRef dims, bool keep = false) { return t.sum(dims, keep); }
inline Tensor mean(const Tensor& t, IntArrayRef dims, bool keep = false) {
    return t.mean(dims, keep);
}
inline Tensor gather(const Tensor& t, int64_t d, const Tensor& index, bool = false) {
    return t.gather(d, index);
}
inline Tensor index_select(const Tensor& t, int64_t d, const Tensor& rows) {
    return t.index_select(d, rows);
}
inline Tensor transpose(const Tensor& t, int64_t a, int64_t b) { return t.transpose(a, b); }
inline Tensor unsqueeze(const Tensor& t, int64_t d) { return t.unsqueeze(d); }
inline Tensor squeeze(const Tensor& t) { return t.squeeze(); }
inline Tensor squeeze(const Tensor& t, int64_t d) { return t.squeeze(d); }
inline Tensor flatten(const Tensor& t, int64_t from = 0, int64_t to = -1) {
    return t.flatten(from, to);
}
inline Tensor reshape(const Tensor& t, IntArrayRef to) { return t.reshape(to); }
inline Tensor clone(const Tensor& t) { return t.clone(); }
#define SIMT_MADE(name)                                                                           \
    template <class... A>                                                                         \
    inline Tensor name(IntArrayRef sizes, TensorOptions o = {}) {                                 \
        return simt::lite::delegated<Tensor>(#name, sizes).to(o);                                 \
    }
SIMT_MADE(rand)
SIMT_MADE(randn)
#undef SIMT_MADE
inline Tensor randperm(int64_t n, TensorOptions o = kLong) {
    return simt::lite::delegated<Tensor>("randperm", n).to(o);
}
inline Tensor randint(int64_t to, IntArrayRef sizes, TensorOptions o = kLong) {
    return simt::lite::delegated<Tensor>("randint", to, sizes).to(o);
}
inline Tensor randint(int64_t from, int64_t to, IntArrayRef sizes, TensorOptions o = kLong) {
    return simt::lite::delegated<Tensor>("randint", from, to, sizes).to(o);
}
inline Tensor eye(int64_t n, TensorOptions o = {}) {
    return simt::lite::delegated<Tensor>("eye", n).to(o);
}

inline std::optional<Device> device_of(const Tensor& t) {
    return t.defined() ? std::optional<Device>(t.device()) : std::nullopt;
}

}  // namespace at
#include "../../simt/convert.h"
