// at::Tensor: shape, memory and the few operations that extensions use around their kernels.
// Element work is done by the runtime; there are no gradients. What is not here does not compile.
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

namespace at {
using namespace c10;

class Tensor {
    using Impl = simt::lite::Impl;

  public:
    Tensor() = default;
    explicit Tensor(Impl* owned) : impl_(owned) {}
    Tensor(const Tensor& t) : impl_(t.impl_) { simt::lite::retain(impl_); }
    Tensor(Tensor&& t) noexcept : impl_(std::exchange(t.impl_, nullptr)) {}
    Tensor& operator=(Tensor t) noexcept {
        std::swap(impl_, t.impl_);
        return *this;
    }
    ~Tensor() { simt::lite::release(impl_); }
    Impl* unsafeGetTensorImpl() const { return impl_; }

    // ---- what it is

    bool defined() const { return impl_; }
    int64_t dim() const { return self().dims; }
    int64_t ndimension() const { return dim(); }
    IntArrayRef sizes() const { return {self().sizes, (size_t)self().dims}; }
    IntArrayRef strides() const { return {impl_->strides, (size_t)self().dims}; }
    int64_t size(int64_t d) const { return self().sizes[wrap(d)]; }
    int64_t stride(int64_t d) const { return self().strides[wrap(d)]; }
    int64_t numel() const {
        int64_t n = 1;
        for (int64_t s : sizes()) n *= s;
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
    bool is_same(const Tensor& t) const { return impl_ == t.impl_; }
    TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }
    Layout layout() const { return kStrided; }
    MemoryFormat suggest_memory_format() const { return MemoryFormat::Contiguous; }
    bool is_contiguous(MemoryFormat = MemoryFormat::Contiguous) const {
        int64_t expected = 1;
        for (int64_t d = dim() - 1; d >= 0; --d) {
            if (size(d) != 1 && stride(d) != expected && numel()) return false;
            expected *= size(d);
        }
        return true;
    }

    // ---- its elements

    void* data_ptr() const {
        if (!numel()) return nullptr;
        return self().storage->data + self().offset * element_size();
    }
    template <class T>
    T* data_ptr() const {
        constexpr ScalarType wanted = CppTypeToScalarType<std::remove_const_t<T>>::value;
        TORCH_CHECK(scalar_type() == wanted, "expected scalar type ", wanted, " but found ",
                    scalar_type());
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
        check_dims(N);
        return {data_ptr<T>(), impl_->sizes, impl_->strides};
    }

    Scalar item() const {
        TORCH_CHECK(numel() == 1, "a Tensor with ", numel(),
                    " elements cannot be converted to Scalar");
        return Scalar(simt::lite::read(impl_, 0));
    }
    template <class T>
    T item() const { return item().to<T>(); }

    // ---- the same elements, seen otherwise

    Tensor as_strided(IntArrayRef sizes, IntArrayRef strides,
                      std::optional<int64_t> offset = std::nullopt) const {
        TORCH_CHECK(sizes.size() == strides.size() && sizes.size() <= simt::lite::most_dims,
                    "as_strided: ", sizes, " and ", strides);
        return Tensor(simt::lite::view(&self(), (int)sizes.size(), sizes.data(), strides.data(),
                                       offset.value_or(impl_->offset)));
    }
    Tensor view(IntArrayRef sizes) const {
        std::vector<int64_t> to = inferred(sizes), strides;
        TORCH_CHECK(viewable(to, strides), "view size is not compatible with input tensor's size "
                    "and stride (", this->sizes(), ", ", this->strides(), "); use reshape");
        return as_strided(to, strides);
    }
    Tensor reshape(IntArrayRef sizes) const {
        std::vector<int64_t> to = inferred(sizes), strides;
        return viewable(to, strides) ? as_strided(to, strides) : contiguous().view(to);
    }
    Tensor view_as(const Tensor& t) const { return view(t.sizes()); }
    Tensor reshape_as(const Tensor& t) const { return reshape(t.sizes()); }
    Tensor flatten(int64_t from = 0, int64_t to = -1) const {
        std::vector<int64_t> s;
        if (!dim()) return reshape({1});
        const int first = wrap(from), last = wrap(to);
        for (int d = 0; d < dim(); ++d) {
            if (d > first && d <= last) s.back() *= size(d);
            else s.push_back(size(d));
        }
        return reshape(s);
    }
    Tensor permute(IntArrayRef order) const {
        TORCH_CHECK((int64_t)order.size() == dim(), "permute: ", order, " for ", dim(),
                    " dimensions");
        std::vector<int64_t> s, st;
        for (int64_t d : order) {
            s.push_back(size(d));
            st.push_back(stride(d));
        }
        return as_strided(s, st);
    }
    Tensor transpose(int64_t a, int64_t b) const {
        std::vector<int64_t> order;
        for (int64_t d = 0; d < dim(); ++d) order.push_back(d);
        if (dim()) std::swap(order[wrap(a)], order[wrap(b)]);
        return permute(order);
    }
    Tensor t() const {
        TORCH_CHECK(dim() <= 2, "t() expects a tensor with <= 2 dimensions, but self is ", dim(),
                    "D");
        return dim() == 2 ? transpose(0, 1) : *this;
    }
    Tensor unsqueeze(int64_t d) const {
        std::vector<int64_t> s = sizes().vec(), st = strides().vec();
        const int at = (int)(d < 0 ? d + dim() + 1 : d);
        TORCH_CHECK(at >= 0 && at <= dim(), "Dimension out of range: ", d);
        st.insert(st.begin() + at, at < dim() ? s[at] * st[at] : 1);
        s.insert(s.begin() + at, 1);
        return as_strided(s, st);
    }
    Tensor squeeze() const { return squeezed(-1); }
    Tensor squeeze(int64_t d) const { return squeezed(wrap(d)); }
    Tensor expand(IntArrayRef to) const {
        std::vector<int64_t> s = to.vec(), st(to.size(), 0);
        const int64_t shift = (int64_t)to.size() - dim();
        TORCH_CHECK(shift >= 0, "expand: ", to, " has fewer dimensions than ", sizes());
        for (int64_t d = 0; d < dim(); ++d) {
            int64_t& wanted = s[(size_t)(d + shift)];
            if (wanted == -1) wanted = size(d);
            TORCH_CHECK(wanted == size(d) || size(d) == 1, "expand: ", to, " from ", sizes());
            st[(size_t)(d + shift)] = size(d) == 1 && wanted != 1 ? 0 : stride(d);
        }
        return as_strided(s, st);
    }
    Tensor expand_as(const Tensor& t) const { return expand(t.sizes()); }
    Tensor select(int64_t d, int64_t index) const {
        const int at = wrap(d);
        std::vector<int64_t> s = sizes().vec(), st = strides().vec();
        const int64_t i = index < 0 ? index + s[at] : index;
        TORCH_CHECK_INDEX(i >= 0 && i < s[at], "select: index ", index, " of ", s[at]);
        const int64_t offset = self().offset + i * st[at];
        s.erase(s.begin() + at);
        st.erase(st.begin() + at);
        return as_strided(s, st, offset);
    }
    Tensor operator[](int64_t index) const { return select(0, index); }
    Tensor narrow(int64_t d, int64_t from, int64_t length) const {
        const int at = wrap(d);
        std::vector<int64_t> s = sizes().vec();
        TORCH_CHECK_INDEX(from >= 0 && length >= 0 && from + length <= s[at], "narrow: ", length,
                          " from ", from, " of ", s[at]);
        s[at] = length;
        return as_strided(s, strides(), self().offset + from * stride(at));
    }
    Tensor slice(int64_t d, std::optional<int64_t> from = std::nullopt,
                 std::optional<int64_t> to = std::nullopt, int64_t step = 1) const {
        const int at = wrap(d);
        const auto bound = [&](int64_t i) {
            return std::min(std::max<int64_t>(i < 0 ? i + size(at) : i, 0), size(at));
        };
        const int64_t first = bound(from.value_or(0)), last = bound(to.value_or(size(at)));
        TORCH_CHECK_VALUE(step > 0, "slice step must be positive");
        std::vector<int64_t> s = sizes().vec(), st = strides().vec();
        s[at] = last > first ? (last - first + step - 1) / step : 0;
        st[at] *= step;
        return as_strided(s, st, self().offset + first * stride(at));
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
    Tensor cpu() const { return to(Device(kCPU)); }
    Tensor cuda() const { return to(Device(kCUDA)); }
    Tensor toType(ScalarType type) const { return to(type); }
    Tensor to_float() const { return to(kFloat); }
    Tensor& copy_(const Tensor& from, bool = false) {
        const Tensor same = from.expand(sizes());
        simt::lite::assign(impl_, same.impl_);
        return *this;
    }
    Tensor& fill_(const Scalar& value) {
        simt::lite::fill(&self(), value.number());
        return *this;
    }
    Tensor& zero_() { return fill_(0); }

    // ---- sums and extremes, sorting

    Tensor sum(std::optional<ScalarType> type = std::nullopt) const {
        return reduced(simt::lite::Reduction::sum, type.value_or(sum_type()));
    }
    Tensor sum(int64_t d, bool keep = false) const {
        return reduced(simt::lite::Reduction::sum, sum_type(), wrap(d), keep);
    }
    Tensor mean() const { return reduced(simt::lite::Reduction::mean, scalar_type()); }
    Tensor mean(int64_t d, bool keep = false) const {
        return reduced(simt::lite::Reduction::mean, scalar_type(), wrap(d), keep);
    }
    Tensor max() const { return reduced(simt::lite::Reduction::largest, scalar_type()); }
    Tensor min() const { return reduced(simt::lite::Reduction::smallest, scalar_type()); }
    Tensor amax(int64_t d, bool keep = false) const {
        return reduced(simt::lite::Reduction::largest, scalar_type(), wrap(d), keep);
    }
    Tensor amin(int64_t d, bool keep = false) const {
        return reduced(simt::lite::Reduction::smallest, scalar_type(), wrap(d), keep);
    }
    std::tuple<Tensor, Tensor> max(int64_t d, bool keep = false) const {
        return extremes(simt::lite::Reduction::largest, d, keep);
    }
    std::tuple<Tensor, Tensor> min(int64_t d, bool keep = false) const {
        return extremes(simt::lite::Reduction::smallest, d, keep);
    }
    Tensor argsort(int64_t d = -1, bool descending = false) const {
        return Tensor(simt::lite::sorted_order(&self(), wrap(d), descending));
    }
    std::tuple<Tensor, Tensor> sort(int64_t d = -1, bool descending = false) const {
        Tensor order = argsort(d, descending);
        return {gather(d, order), order};
    }
    std::tuple<Tensor, Tensor> sort(std::optional<bool>, int64_t d, bool descending) const {
        return sort(d, descending);
    }
    Tensor gather(int64_t d, const Tensor& index) const {
        TORCH_CHECK(index.dim() == dim() && index.scalar_type() == kLong,
                    "gather: the index has the same dimensions, and int64 elements");
        Impl* found = simt::lite::gather(&self(), wrap(d), index.impl_);
        TORCH_CHECK_INDEX(found, "gather: index out of range");
        return Tensor(found);
    }
    Tensor index_select(int64_t d, const Tensor& rows) const {
        TORCH_CHECK(rows.dim() == 1 && isIntegralType(rows.scalar_type()),
                    "index_select: the index is a vector of integers");
        Impl* found = simt::lite::select_rows(&self(), wrap(d), rows.impl_);
        TORCH_CHECK_INDEX(found, "index_select: index out of range");
        return Tensor(found);
    }

    // ---- arithmetic, with broadcasting

    friend Tensor operator+(const Tensor& a, const Tensor& b) {
        return combined(simt::lite::Operation::add, a, b);
    }
    friend Tensor operator-(const Tensor& a, const Tensor& b) {
        return combined(simt::lite::Operation::subtract, a, b);
    }
    friend Tensor operator*(const Tensor& a, const Tensor& b) {
        return combined(simt::lite::Operation::multiply, a, b);
    }
    friend Tensor operator/(const Tensor& a, const Tensor& b) {
        return combined(simt::lite::Operation::divide, a, b);
    }
    friend Tensor operator+(const Tensor& a, const Scalar& b) { return a + a.constant(b); }
    friend Tensor operator-(const Tensor& a, const Scalar& b) { return a - a.constant(b); }
    friend Tensor operator*(const Tensor& a, const Scalar& b) { return a * a.constant(b); }
    friend Tensor operator/(const Tensor& a, const Scalar& b) { return a / a.constant(b); }
    friend Tensor operator+(const Scalar& a, const Tensor& b) { return b.constant(a) + b; }
    friend Tensor operator-(const Scalar& a, const Tensor& b) { return b.constant(a) - b; }
    friend Tensor operator*(const Scalar& a, const Tensor& b) { return b.constant(a) * b; }
    friend Tensor operator/(const Scalar& a, const Tensor& b) { return b.constant(a) / b; }
    Tensor operator-() const { return constant(0) - *this; }
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

    static Tensor make(IntArrayRef sizes, ScalarType type, bool device) {
        TORCH_CHECK(sizes.size() <= simt::lite::most_dims, "A tensor has at most ",
                    simt::lite::most_dims, " dimensions here, got ", sizes.size());
        for (int64_t s : sizes) TORCH_CHECK(s >= 0, "Trying to create tensor with negative "
                                            "dimension ", s, ": ", sizes);
        Impl* made = simt::lite::make((int)type, device, (int)sizes.size(), sizes.data());
        TORCH_CHECK(made, "out of memory: a tensor of ", sizes, " ", type);
        return Tensor(made);
    }

  private:
    Impl& self() const {
        TORCH_CHECK(impl_, "the tensor is undefined");
        return *impl_;
    }
    int wrap(int64_t d) const {
        const int64_t n = dim() ? dim() : 1;
        TORCH_CHECK_INDEX(d >= -n && d < n, "Dimension out of range (expected to be in range of [",
                          -n, ", ", n - 1, "], but got ", d, ")");
        return (int)(d < 0 ? d + n : d);
    }
    void check_dims(size_t n) const {
        TORCH_CHECK((size_t)dim() == n, "TensorAccessor expected ", n, " dims but tensor has ",
                    dim());
    }
    std::vector<int64_t> inferred(IntArrayRef to) const {  // -1: whatever is left
        std::vector<int64_t> s = to.vec();
        int64_t known = 1, at = -1;
        for (size_t i = 0; i < s.size(); ++i) {
            if (s[i] == -1) at = (int64_t)i;
            else known *= s[i];
        }
        if (at >= 0 && known) s[(size_t)at] = numel() / known;
        if (at >= 0) known *= s[(size_t)at];
        TORCH_CHECK(known == numel(), "shape '", to, "' is invalid for input of size ", numel());
        return s;
    }
    // Strides that show the same elements in the same order under other sizes, if there are any.
    bool viewable(const std::vector<int64_t>& to, std::vector<int64_t>& out) const {
        out.assign(to.size(), 1);
        int64_t d = dim() - 1, left = 1, step = 1;  // the run of memory that is being split
        for (int64_t i = (int64_t)to.size() - 1; i >= 0; --i) {
            if (to[(size_t)i] == 1 || !numel()) {
                out[(size_t)i] = step;
                continue;
            }
            while (left == 1) {
                while (size(d) == 1) --d;
                left = size(d);
                step = stride(d--);
                while (d >= 0 && (size(d) == 1 || stride(d) == step * left)) left *= size(d--);
            }
            if (left % to[(size_t)i]) return false;
            out[(size_t)i] = step;
            step *= to[(size_t)i];
            left /= to[(size_t)i];
        }
        return true;
    }
    Tensor squeezed(int only) const {  // -1: every dimension of size 1
        std::vector<int64_t> s, st;
        for (int d = 0; d < dim(); ++d) {
            if (size(d) == 1 && (only < 0 || only == d)) continue;
            s.push_back(size(d));
            st.push_back(stride(d));
        }
        return as_strided(s, st);
    }
    Tensor converted(ScalarType type, bool device) const {
        Tensor copy = make(sizes(), type, device);
        simt::lite::assign(copy.impl_, impl_);
        return copy;
    }
    Tensor constant(const Scalar& value) const {
        const bool widen = value.isFloatingPoint() && !is_floating_point();
        Tensor one = make({}, widen ? kFloat : scalar_type(), is_cuda());
        return one.fill_(value);
    }
    ScalarType sum_type() const {
        return isIntegralType(scalar_type(), true) ? kLong : scalar_type();
    }
    Tensor reduced(simt::lite::Reduction how, ScalarType type, int d = -1, bool keep = false) const {
        return Tensor(simt::lite::reduce(how, &self(), d, keep, (int)type, nullptr));
    }
    std::tuple<Tensor, Tensor> extremes(simt::lite::Reduction how, int64_t d, bool keep) const {
        Impl* where = nullptr;
        Tensor values(
            simt::lite::reduce(how, &self(), wrap(d), keep, (int)scalar_type(), &where));
        return {values, Tensor(where)};
    }
    static Tensor combined(simt::lite::Operation op, const Tensor& a, const Tensor& b) {
        TORCH_CHECK(a.is_cuda() == b.is_cuda() || !a.dim() || !b.dim(),
                    "Expected all tensors to be on the same device");
        std::vector<int64_t> to;
        const int64_t n = std::max(a.dim(), b.dim());
        for (int64_t i = 0; i < n; ++i) {
            const int64_t da = i - (n - a.dim()), db = i - (n - b.dim());
            const int64_t sa = da < 0 ? 1 : a.size(da), sb = db < 0 ? 1 : b.size(db);
            TORCH_CHECK(sa == sb || sa == 1 || sb == 1, "The size of tensor a (", sa,
                        ") must match the size of tensor b (", sb, ") at dimension ", i);
            to.push_back(sa == 1 ? sb : sa);
        }
        ScalarType type = promoteTypes(a.scalar_type(), b.scalar_type());
        if (op == simt::lite::Operation::divide && !isFloatingType(type)) type = kFloat;
        return Tensor(simt::lite::combine(op, a.expand(to).impl_, b.expand(to).impl_, (int)type));
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
    return Tensor::make(sizes, o.dtype().toScalarType(), o.device().is_cuda());
}
inline Tensor full(IntArrayRef sizes, const Scalar& value, TensorOptions o) {
    return empty(sizes, o).fill_(value);
}
inline Tensor full(IntArrayRef sizes, const Scalar& value) {
    return empty(sizes, value.isFloatingPoint() ? kFloat : value.type()).fill_(value);
}
inline Tensor zeros(IntArrayRef sizes, TensorOptions o = {}) { return full(sizes, 0, o); }
inline Tensor ones(IntArrayRef sizes, TensorOptions o = {}) { return full(sizes, 1, o); }
inline Tensor empty_like(const Tensor& t, TensorOptions o, MemoryFormat = {}) {
    return empty(t.sizes(), o);
}
// Keeps the order of dense strides, as PyTorch does: a transposed matrix has a transposed like.
inline Tensor empty_like(const Tensor& t) {
    std::vector<int64_t> order, sizes;
    for (int64_t d = 0; d < t.dim(); ++d) {
        auto at = order.begin();
        while (at != order.end() && t.stride(*at) >= t.stride(d)) ++at;
        order.insert(at, d);
    }
    int64_t dense = 1;
    for (size_t i = order.size(); i-- > 0; dense *= t.size(order[i]))
        if (t.size(order[i]) != 1 && t.stride(order[i]) != dense) return empty(t.sizes(), t.options());
    std::vector<int64_t> back(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
        sizes.push_back(t.size(order[i]));
        back[(size_t)order[i]] = (int64_t)i;
    }
    return empty(sizes, t.options()).permute(back);
}
inline Tensor zeros_like(const Tensor& t) { return empty_like(t).zero_(); }
inline Tensor ones_like(const Tensor& t) { return empty_like(t).fill_(1); }
inline Tensor full_like(const Tensor& t, const Scalar& value) { return empty_like(t).fill_(value); }
inline Tensor zeros_like(const Tensor& t, TensorOptions o) { return zeros(t.sizes(), o); }
inline Tensor ones_like(const Tensor& t, TensorOptions o) { return ones(t.sizes(), o); }
inline Tensor full_like(const Tensor& t, const Scalar& value, TensorOptions o) {
    return full(t.sizes(), value, o);
}
inline Tensor arange(const Scalar& from, const Scalar& to, const Scalar& step, TensorOptions o) {
    const double distance = (to.toDouble() - from.toDouble()) / step.toDouble();
    int64_t count = (int64_t)distance;
    count = distance <= 0 ? 0 : count + ((double)count < distance);
    Tensor t = empty({count}, o);
    for (int64_t i = 0; i < count; ++i) {
        const double real = from.toDouble() + (double)i * step.toDouble();
        const int64_t whole = from.toLong() + i * step.toLong();
        simt::lite::write(t.unsafeGetTensorImpl(), i, {real, whole, isFloatingType(t.scalar_type())});
    }
    return t;
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
inline Tensor tensor(const std::vector<T>& values, TensorOptions o) {
    return tensor(ArrayRef<T>(values), o);
}
template <class T>
inline Tensor tensor(const std::vector<T>& values) {
    return tensor(ArrayRef<T>(values), std::is_integral<T>::value ? kLong : kFloat);
}
template <class T>
inline Tensor tensor(std::initializer_list<T> values, TensorOptions o) {
    return tensor(ArrayRef<T>(values), o);
}
template <class T>
inline Tensor tensor(std::initializer_list<T> values) {
    return tensor(ArrayRef<T>(values), std::is_integral<T>::value ? kLong : kFloat);
}
inline Tensor scalar_tensor(const Scalar& value, TensorOptions o = {}) { return full({}, value, o); }

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
    TORCH_CHECK(!parts.empty(), "torch.cat(): expected a non-empty list of Tensors");
    std::vector<int64_t> sizes = parts[0].sizes().vec();
    const size_t at = (size_t)(d < 0 ? d + parts[0].dim() : d);
    TORCH_CHECK_INDEX(at < sizes.size(), "cat: dimension ", d);
    for (const Tensor& t : parts.slice(1)) sizes[at] += t.size((int64_t)at);
    Tensor all = empty(sizes, parts[0].options());
    int64_t from = 0;
    for (const Tensor& t : parts) {
        all.narrow((int64_t)at, from, t.size((int64_t)at)).copy_(t);
        from += t.size((int64_t)at);
    }
    return all;
}
inline Tensor stack(ArrayRef<Tensor> parts, int64_t d = 0) {
    std::vector<Tensor> raised;
    for (const Tensor& t : parts) raised.push_back(t.unsqueeze(d));
    return cat(raised, d);
}

inline std::optional<Device> device_of(const Tensor& t) {
    return t.defined() ? std::optional<Device>(t.device()) : std::nullopt;
}

}  // namespace at
