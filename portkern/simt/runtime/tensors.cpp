// The shapes and elements of lite.h's tensors. Speed matters little: a test's tensors are small,
// and what a kernel computes is not computed here.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "memory.h"
#include "simt/lite.h"
#include "simt/narrow.h"

namespace simt::lite {
namespace {

thread_local char failure_kind[32], failure_text[512];

[[gnu::format(printf, 2, 3)]] std::nullptr_t refuse(const char* kind, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char text[sizeof failure_text];
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fail(kind, text);
    return nullptr;
}

struct Dtype {
    int number;
    const char* name;
    size_t bytes;
    bool real;
};
const Dtype dtypes[] = {
    {0, "Byte", 1, false}, {1, "Char", 1, false}, {2, "Short", 2, false}, {3, "Int", 4, false},
    {4, "Long", 8, false}, {5, "Half", 2, true}, {6, "Float", 4, true}, {7, "Double", 8, true},
    {11, "Bool", 1, false}, {15, "BFloat16", 2, true}, {23, "Float8_e5m2", 1, true},
    {24, "Float8_e4m3fn", 1, true}, {25, "Float8_e5m2fnuz", 1, true},
    {26, "Float8_e4m3fnuz", 1, true}, {27, "UInt16", 2, false}, {28, "UInt32", 4, false},
    {29, "UInt64", 8, false},
};
constexpr int float32 = 6, int64 = 4, boolean = 11;

const Dtype* find(int dtype) {
    for (const Dtype& d : dtypes)
        if (d.number == dtype) return &d;
    return nullptr;
}
bool is_real(int dtype) {
    const Dtype* d = find(dtype);
    return d && d->real;
}

// Calls f with a null pointer of the C++ type of `dtype`.
template <class F>
void as_type(int dtype, F&& f) {
    switch (dtype) {
        case 0: return f((uint8_t*)nullptr);
        case 1: return f((int8_t*)nullptr);
        case 2: return f((int16_t*)nullptr);
        case 3: return f((int32_t*)nullptr);
        case 4: return f((int64_t*)nullptr);
        case 5: return f((f16*)nullptr);
        case 6: return f((float*)nullptr);
        case 7: return f((double*)nullptr);
        case 11: return f((bool*)nullptr);
        case 15: return f((bf16*)nullptr);
        case 23: return f((e5m2*)nullptr);
        case 24: return f((e4m3*)nullptr);
        case 25: return f((e5m2fnuz*)nullptr);
        case 26: return f((e4m3fnuz*)nullptr);
        case 27: return f((uint16_t*)nullptr);
        case 28: return f((uint32_t*)nullptr);
        case 29: return f((uint64_t*)nullptr);
    }
}

char* address(const Impl* t, int64_t element) {
    return t->storage->data + (t->offset + element) * (int64_t)dtype_size(t->dtype);
}

Number load(const Impl* t, int64_t element) {
    Number n{0, 0, is_real(t->dtype)};
    as_type(t->dtype, [&](auto* null) {
        using T = std::remove_pointer_t<decltype(null)>;
        const T& x = *reinterpret_cast<const T*>(address(t, element));
        if constexpr (std::is_integral<T>::value) n.whole = (int64_t)x;
        else if constexpr (std::is_same<T, double>::value) n.real = x;
        else n.real = (double)(float)x;
    });
    if (!n.is_real) n.real = (double)n.whole;
    return n;
}

void store(const Impl* t, int64_t element, const Number& n) {
    as_type(t->dtype, [&](auto* null) {
        using T = std::remove_pointer_t<decltype(null)>;
        T& to = *reinterpret_cast<T*>(address(t, element));
        if constexpr (std::is_same<T, bool>::value) to = n.is_real ? n.real != 0 : n.whole != 0;
        else if constexpr (std::is_integral<T>::value)
            to = (T)(n.is_real ? (int64_t)n.real : n.whole);
        else to = T(n.is_real ? n.real : (double)n.whole);
    });
}

int64_t count(int dims, const int64_t* sizes) {
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= sizes[d];
    return n;
}
int64_t count(const Impl* t) { return count(t->dims, t->sizes); }

// f(element) for each element of `t` in the order of its sizes; `element` is its place in memory.
template <class F>
void for_each(const Impl* t, F&& f) {
    if (!count(t)) return;
    int64_t index[most_dims] = {}, at = 0;
    for (;;) {
        f(at);
        int d = t->dims - 1;
        for (; d >= 0; --d) {
            at += t->strides[d];
            if (++index[d] < t->sizes[d]) break;
            at -= t->sizes[d] * t->strides[d];
            index[d] = 0;
        }
        if (d < 0) return;
    }
}

int64_t place(const Impl* t, int64_t index) {  // of the index-th element
    int64_t at = 0;
    for (int d = t->dims - 1; d >= 0; --d) {
        at += index % t->sizes[d] * t->strides[d];
        index /= t->sizes[d];
    }
    return at;
}

void wrote(const Impl* t) {  // all of a tensor without gaps, or element by element
    const size_t size = dtype_size(t->dtype);
    if (is_contiguous(t)) return mark_written(address(t, 0), (size_t)count(t) * size);
    for_each(t, [&](int64_t at) { mark_written(address(t, at), size); });
}

// The dimension that d means, of `dims`; -1, and a failure, if there is none.
int wrap(int64_t d, int dims) {
    const int n = std::max(dims, 1);
    if (d >= -n && d < n) return (int)(d < 0 ? d + n : d);
    refuse("IndexError",
           "Dimension out of range (expected to be in range of [%d, %d], but got %lld)", -n, n - 1,
           (long long)d);
    return -1;
}

struct Shape {  // of a view to be made
    int dims = 0;
    int64_t sizes[most_dims], strides[most_dims];
    explicit Shape(const Impl* t) : dims(t->dims) {
        std::copy_n(t->sizes, t->dims, sizes);
        std::copy_n(t->strides, t->dims, strides);
    }
    void erase(int d) {
        std::copy(sizes + d + 1, sizes + dims, sizes + d);
        std::copy(strides + d + 1, strides + dims, strides + d);
        --dims;
    }
};
Impl* seen_as(const Impl* t, const Shape& s, int64_t offset) {
    return as_strided(t, s.dims, s.sizes, s.strides, offset);
}

void print_shape(char* text, size_t size, int dims, const int64_t* sizes) {
    size_t used = (size_t)snprintf(text, size, "[");
    for (int d = 0; d < dims && used < size; ++d)
        used += (size_t)snprintf(text + used, size - used, d ? ", %lld" : "%lld",
                                 (long long)sizes[d]);
    if (used < size) snprintf(text + used, size - used, "]");
}
struct Printed {
    char text[200];
    Printed(int dims, const int64_t* sizes) { print_shape(text, sizeof text, dims, sizes); }
};

}  // namespace

// ---- failures, types, references

Failure error() { return {failure_kind, failure_text}; }

void fail(const char* kind, const char* text) {
    snprintf(failure_kind, sizeof failure_kind, "%s", kind);
    snprintf(failure_text, sizeof failure_text, "%s", text);
}

const char* dtype_name(int dtype) {
    const Dtype* d = find(dtype);
    return d ? d->name : "Undefined";
}
size_t dtype_size(int dtype) {
    const Dtype* d = find(dtype);
    return d ? d->bytes : 0;
}

void retain(Impl* t) {
    if (t) __atomic_add_fetch(&t->references, 1, __ATOMIC_RELAXED);
}

void release(Impl* t) {
    if (!t || __atomic_sub_fetch(&t->references, 1, __ATOMIC_ACQ_REL)) return;
    if (!__atomic_sub_fetch(&t->storage->references, 1, __ATOMIC_ACQ_REL)) {
        if (!t->storage->foreign) simt::release(t->storage->data);
        delete t->storage;
    }
    if (t->maker) release_maker(t->maker);
    delete t;
}

// ---- who made a tensor, for its gradient

void made_by(Maker* maker, Impl* output, int64_t number) {
    if (output->maker) release_maker(output->maker);
    __atomic_add_fetch(&maker->references, 1, __ATOMIC_RELAXED);
    output->maker = maker;
    output->output = number;
}

Maker* maker_of(const Impl* t, int64_t* number) {
    *number = t->output;
    return t->maker;
}

void release_maker(Maker* maker) {
    if (__atomic_sub_fetch(&maker->references, 1, __ATOMIC_ACQ_REL)) return;
    for (int64_t i = 0; i < maker->inputs; ++i) release(maker->of[i]);
    delete[] maker->of;
    maker->end(maker->function);
    delete maker;
}

// ---- making

Impl* make(int dtype, bool device, int dims, const int64_t* sizes) {
    if (dims > most_dims)
        return refuse("RuntimeError", "%d dimensions; %d are the most", dims, most_dims);
    if (!dtype_size(dtype)) return refuse("TypeError", "a tensor of an undefined type");
    for (int d = 0; d < dims; ++d)
        if (sizes[d] < 0)
            return refuse("RuntimeError",
                          "Trying to create tensor with negative dimension %lld: %s",
                          (long long)sizes[d], Printed(dims, sizes).text);
    const size_t bytes = (size_t)count(dims, sizes) * dtype_size(dtype);
    void* data = allocate(bytes, device ? Kind::device : Kind::host);
    if (!data) return refuse("RuntimeError", "out of memory: %zu bytes", bytes);
    if (Region* region = bytes ? region_of(data) : nullptr) region->dtype = dtype;
    Impl* t = new Impl{1, new Storage{static_cast<char*>(data), bytes, 1, device, false}, 0, dtype, dims,
                       {}, {}};
    std::copy_n(sizes, dims, t->sizes);
    for (int64_t d = dims - 1, step = 1; d >= 0; --d) {
        t->strides[d] = step;
        step *= std::max<int64_t>(sizes[d], 1);
    }
    return t;
}

Impl* make_of(void* data, int dtype, bool device, int dims, const int64_t* sizes,
              const int64_t* strides) {
    if (dims > most_dims)
        return refuse("RuntimeError", "%d dimensions; %d are the most", dims, most_dims);
    if (!dtype_size(dtype)) return refuse("TypeError", "a tensor of an undefined type");
    Impl* t = new Impl{1, new Storage{static_cast<char*>(data), 0, 1, device, true}, 0, dtype, dims,
                       {}, {}};
    std::copy_n(sizes, dims, t->sizes);
    int64_t last = 0;
    for (int64_t d = dims - 1, step = 1; d >= 0; --d) {
        t->strides[d] = strides ? strides[d] : step;
        step *= std::max<int64_t>(sizes[d], 1);
        last += (sizes[d] - 1) * t->strides[d];
    }
    t->storage->bytes = count(t) ? (size_t)(last + 1) * dtype_size(dtype) : 0;
    return t;
}

bool is_contiguous(const Impl* t) {
    int64_t step = 1;
    if (!count(t)) return true;
    for (int d = t->dims - 1; d >= 0; --d) {
        if (t->sizes[d] != 1 && t->strides[d] != step) return false;
        step *= t->sizes[d];
    }
    return true;
}

Impl* make_like(const Impl* t, int dtype, bool device) {
    Impl* made = make(dtype, device, t->dims, t->sizes);
    if (!made) return nullptr;
    std::vector<int> order;  // of dimensions, the widest stride first
    for (int d = 0; d < t->dims; ++d) order.push_back(d);
    std::stable_sort(order.begin(), order.end(),
                     [t](int a, int b) { return t->strides[a] > t->strides[b]; });
    int64_t step = 1, strides[most_dims];
    for (int i = t->dims - 1; i >= 0; --i) {
        const int d = order[(size_t)i];
        if (t->sizes[d] != 1 && t->strides[d] != step) return made;  // it has gaps, or repeats
        strides[d] = step;
        step *= t->sizes[d];
    }
    std::copy_n(strides, t->dims, made->strides);
    return made;
}

Impl* make_range(double from, double to, double step, int dtype, bool device) {
    if (step == 0) return refuse("RuntimeError", "step must be nonzero");
    const int64_t n = std::max<int64_t>(0, (int64_t)std::ceil((to - from) / step));
    Impl* made = make(dtype, device, 1, &n);
    for (int64_t i = 0; made && i < n; ++i) {
        const double value = from + (double)i * step;
        store(made, i, {value, (int64_t)value, is_real(dtype)});
    }
    if (made) wrote(made);
    return made;
}

// ---- views

Impl* as_strided(const Impl* t, int dims, const int64_t* sizes, const int64_t* strides,
                 int64_t offset) {
    if (dims > most_dims)
        return refuse("RuntimeError", "%d dimensions; %d are the most", dims, most_dims);
    int64_t last = offset;
    for (int d = 0; d < dims; ++d) last += std::max<int64_t>(sizes[d] - 1, 0) * strides[d];
    const int64_t elements = (int64_t)(t->storage->bytes / dtype_size(t->dtype));
    if (count(dims, sizes) && (offset < 0 || last >= elements))
        return refuse("RuntimeError", "a view of %s reaches element %lld of a storage of %lld",
                      Printed(dims, sizes).text, (long long)last, (long long)elements);
    __atomic_add_fetch(&t->storage->references, 1, __ATOMIC_RELAXED);
    Impl* made = new Impl{1, t->storage, offset, t->dtype, dims, {}, {}};
    std::copy_n(sizes, dims, made->sizes);
    std::copy_n(strides, dims, made->strides);
    return made;
}

namespace {

// Strides that show the same elements in the same order under other sizes, if there are any.
bool strides_for(const Impl* t, int dims, const int64_t* sizes, int64_t* strides) {
    int64_t left = 1, step = 1;  // the run of memory that is being divided
    int d = t->dims - 1;
    for (int i = dims - 1; i >= 0; --i) {
        if (sizes[i] == 1 || !count(t)) {
            strides[i] = step;
            continue;
        }
        while (left == 1) {
            left = t->sizes[d];
            step = t->strides[d--];
            while (d >= 0 && (t->sizes[d] == 1 || t->strides[d] == step * left))
                left *= t->sizes[d--];
        }
        if (left % sizes[i]) return false;
        strides[i] = step;
        step *= sizes[i];
        left /= sizes[i];
    }
    return true;
}

}  // namespace

Impl* reshape(const Impl* t, int dims, const int64_t* wanted, bool may_copy) {
    if (dims > most_dims) return refuse("RuntimeError", "reshape to %d dimensions", dims);
    int64_t sizes[most_dims], strides[most_dims], known = 1;
    int open = -1;  // the dimension given as -1
    for (int d = 0; d < dims; ++d) {
        sizes[d] = wanted[d];
        if (wanted[d] == -1 && open < 0) open = d;
        else known *= wanted[d];
    }
    if (open >= 0 && known > 0) sizes[open] = count(t) / known;
    if (count(dims, sizes) != count(t) || (open >= 0 && known <= 0))
        return refuse("RuntimeError", "shape '%s' is invalid for input of size %lld",
                      Printed(dims, wanted).text, (long long)count(t));
    if (strides_for(t, dims, sizes, strides)) return as_strided(t, dims, sizes, strides, t->offset);
    if (!may_copy)
        return refuse("RuntimeError", "view size is not compatible with input tensor's size and "
                      "stride; use .reshape(...) instead");
    Impl* copy = convert(t, t->dtype, t->storage->device);
    Impl* made = copy ? reshape(copy, dims, sizes, false) : nullptr;
    release(copy);
    return made;
}

Impl* flatten(const Impl* t, int64_t from, int64_t to) {
    const int first = wrap(from, t->dims), last = wrap(to, t->dims);
    if (first < 0 || last < 0) return nullptr;
    int64_t sizes[most_dims] = {1};
    int dims = t->dims ? 0 : 1;
    for (int d = 0; d < t->dims; ++d) {
        if (d > first && d <= last) sizes[dims - 1] *= t->sizes[d];
        else sizes[dims++] = t->sizes[d];
    }
    return reshape(t, dims, sizes, true);
}

Impl* permute(const Impl* t, int dims, const int64_t* order) {
    Shape s(t);
    unsigned seen = 0;
    for (int i = 0; i < dims && dims == t->dims; ++i) {
        const int d = wrap(order[i], dims);
        if (d < 0) return nullptr;
        seen |= 1u << d;
        s.sizes[i] = t->sizes[d];
        s.strides[i] = t->strides[d];
    }
    if (dims != t->dims || seen != (1u << dims) - 1)
        return refuse("RuntimeError", "permute: %s for %d dimensions", Printed(dims, order).text,
                      t->dims);
    return seen_as(t, s, t->offset);
}

Impl* transpose(const Impl* t, int64_t a, int64_t b) {
    const int first = wrap(a, t->dims), second = wrap(b, t->dims);
    if (first < 0 || second < 0) return nullptr;
    Shape s(t);
    if (t->dims) {
        std::swap(s.sizes[first], s.sizes[second]);
        std::swap(s.strides[first], s.strides[second]);
    }
    return seen_as(t, s, t->offset);
}

Impl* unsqueeze(const Impl* t, int64_t d) {
    const int at = wrap(d, t->dims + 1);
    if (at < 0) return nullptr;
    if (t->dims == most_dims) return refuse("RuntimeError", "too many dimensions");
    Shape s(t);
    std::copy_backward(s.sizes + at, s.sizes + s.dims, s.sizes + s.dims + 1);
    std::copy_backward(s.strides + at, s.strides + s.dims, s.strides + s.dims + 1);
    s.strides[at] = at < t->dims ? t->sizes[at] * t->strides[at] : 1;
    s.sizes[at] = 1;
    ++s.dims;
    return seen_as(t, s, t->offset);
}

Impl* squeeze(const Impl* t, int64_t d) {
    const int at = wrap(d, t->dims);
    if (at < 0) return nullptr;
    Shape s(t);
    if (t->dims && t->sizes[at] == 1) s.erase(at);
    return seen_as(t, s, t->offset);
}

Impl* squeeze_all(const Impl* t) {
    Shape s(t);
    for (int d = s.dims - 1; d >= 0; --d)
        if (s.sizes[d] == 1) s.erase(d);
    return seen_as(t, s, t->offset);
}

Impl* expand(const Impl* t, int dims, const int64_t* sizes) {
    const int shift = dims - t->dims;
    int64_t to[most_dims], strides[most_dims];
    bool possible = shift >= 0 && dims <= most_dims;
    for (int i = 0; possible && i < dims; ++i) {
        const int64_t own = i < shift ? 1 : t->sizes[i - shift];
        to[i] = sizes[i] == -1 && i >= shift ? own : sizes[i];
        strides[i] = own == 1 && (to[i] != 1 || i < shift) ? 0 : t->strides[i - shift];
        possible = to[i] == own || (own == 1 && to[i] >= 0);
    }
    if (!possible)
        return refuse("RuntimeError", "expand: %s cannot be made of %s", Printed(dims, sizes).text,
                      Printed(t->dims, t->sizes).text);
    return as_strided(t, dims, to, strides, t->offset);
}

Impl* select(const Impl* t, int64_t d, int64_t index) {
    const int at = wrap(d, t->dims);
    if (at < 0) return nullptr;
    const int64_t size = t->dims ? t->sizes[at] : 0, i = index < 0 ? index + size : index;
    if (i < 0 || i >= size)
        return refuse("IndexError", "index %lld is out of bounds for dimension %d with size %lld",
                      (long long)index, at, (long long)size);
    Shape s(t);
    s.erase(at);
    return seen_as(t, s, t->offset + i * t->strides[at]);
}

Impl* slice(const Impl* t, int64_t d, int64_t from, int64_t to, int64_t step) {
    const int at = wrap(d, t->dims);
    if (at < 0) return nullptr;
    if (!t->dims || step <= 0) return refuse("ValueError", "a slice of a number, or backwards");
    const int64_t size = t->sizes[at];
    const auto bound = [size](int64_t i) {
        return std::min(std::max<int64_t>(i < 0 ? i + size : i, 0), size);
    };
    const int64_t first = bound(from), last = bound(to);
    Shape s(t);
    s.sizes[at] = last > first ? (last - first + step - 1) / step : 0;
    s.strides[at] *= step;
    return seen_as(t, s, t->offset + first * t->strides[at]);
}

// ---- elements

Impl* convert(const Impl* t, int dtype, bool device) {
    Impl* made = make(dtype, device, t->dims, t->sizes);
    if (made) assign(made, t);
    return made;
}

bool assign(Impl* to, const Impl* from) {
    if (to->dtype == from->dtype && is_contiguous(to) && is_contiguous(from) &&
        to->dims == from->dims && std::equal(to->sizes, to->sizes + to->dims, from->sizes)) {
        memmove(address(to, 0), address(from, 0), (size_t)count(to) * dtype_size(to->dtype));
        wrote(to);
        return true;
    }
    Impl* same = expand(from, to->dims, to->sizes);
    if (!same) return false;
    std::vector<Number> values;  // first, for they may share memory
    for_each(same, [&](int64_t at) { values.push_back(load(same, at)); });
    size_t i = 0;
    for_each(to, [&](int64_t at) { store(to, at, values[i++]); });
    wrote(to);
    release(same);
    return true;
}

void fill(Impl* t, Number value) {
    for_each(t, [&](int64_t at) { store(t, at, value); });
    wrote(t);
}

Number read(const Impl* t, int64_t index) { return load(t, place(t, index)); }

void write(Impl* t, int64_t index, Number value) {
    const int64_t at = place(t, index);
    store(t, at, value);
    mark_written(address(t, at), dtype_size(t->dtype));
}

namespace {

int promote(int a, int b) {
    if (a == b) return a;
    const auto rank = [](int t) {
        return t == boolean ? 0 : (is_real(t) ? 100 : 0) + (int)dtype_size(t);
    };
    if (rank(a) == rank(b)) return is_real(a) ? float32 : std::max(a, b);
    return rank(a) > rank(b) ? a : b;
}

Number calculate(Operation op, const Number& a, const Number& b, bool real) {
    const double x = a.is_real ? a.real : (double)a.whole, y = b.is_real ? b.real : (double)b.whole;
    const uint64_t i = (uint64_t)a.whole, j = (uint64_t)b.whole;
    switch (op) {
        case Operation::add: return {x + y, (int64_t)(i + j), real};
        case Operation::subtract: return {x - y, (int64_t)(i - j), real};
        case Operation::multiply: return {x * y, (int64_t)(i * j), real};
        default: return {x / y, 0, true};
    }
}

}  // namespace

Impl* combine(Operation op, const Impl* a, const Impl* b) {
    int64_t sizes[most_dims];
    const int dims = std::max(a->dims, b->dims);
    for (int i = 0; i < dims; ++i) {
        const int da = i - (dims - a->dims), db = i - (dims - b->dims);
        const int64_t sa = da < 0 ? 1 : a->sizes[da], sb = db < 0 ? 1 : b->sizes[db];
        if (sa != sb && sa != 1 && sb != 1)
            return refuse("RuntimeError", "The size of tensor a (%lld) must match the size of "
                          "tensor b (%lld) at non-singleton dimension %d", (long long)sa,
                          (long long)sb, i);
        sizes[i] = sa == 1 ? sb : sa;
    }
    int dtype = promote(a->dtype, b->dtype);
    if (op == Operation::divide && !is_real(dtype)) dtype = float32;
    Impl* made = make(dtype, a->storage->device || b->storage->device, dims, sizes);
    Impl *left = expand(a, dims, sizes), *right = expand(b, dims, sizes);
    for (int64_t i = 0; made && left && right && i < count(made); ++i)
        store(made, i, calculate(op, read(left, i), read(right, i), is_real(dtype)));
    if (made) wrote(made);
    release(left);
    release(right);
    return made;
}

Impl* combine_number(Operation op, const Impl* t, Number number, bool reversed) {
    int dtype = t->dtype;
    if ((number.is_real || op == Operation::divide) && !is_real(dtype)) dtype = float32;
    else if (dtype == boolean) dtype = int64;
    Impl* made = make_like(t, dtype, t->storage->device);
    for (int64_t i = 0; made && i < count(made); ++i) {
        const Number value = read(t, i);
        const Number result = reversed ? calculate(op, number, value, is_real(dtype))
                                       : calculate(op, value, number, is_real(dtype));
        store(made, place(made, i), result);
    }
    if (made) wrote(made);
    return made;
}

namespace {

bool exceeds(const Number& a, const Number& b) {
    if (a.is_real) return a.real > b.real || (a.real != a.real && b.real == b.real);  // NaN wins
    return a.whole > b.whole;
}

// Of `n` elements, `step` apart in memory; `where` becomes the position of an extreme.
Number reduce_run(Reduction how, const Impl* t, int64_t at, int64_t n, int64_t step,
                  int64_t* where) {
    Number total = load(t, at);
    *where = 0;
    for (int64_t i = 1; i < n; ++i) {
        const Number x = load(t, at + i * step);
        if (how <= Reduction::mean) {
            total = calculate(Operation::add, total, x, x.is_real);
            continue;
        }
        const bool better = how == Reduction::largest ? exceeds(x, total)
                            : x.is_real && x.real != x.real ? total.real == total.real
                                                            : exceeds(total, x) &&
                                                                  total.real == total.real;
        if (!better) continue;
        total = x;
        *where = i;
    }
    if (how == Reduction::mean) total.real /= (double)n;
    return total;
}

}  // namespace

Impl* reduce(Reduction how, const Impl* t, int64_t dim, bool keep, int dtype, Impl** where) {
    const int d = wrap(dim, t->dims);
    if (d < 0) return nullptr;
    if (how == Reduction::mean && !is_real(t->dtype))
        return refuse("RuntimeError", "mean(): the input is not floating point");
    const int64_t n = t->dims ? t->sizes[d] : 1, step = t->dims ? t->strides[d] : 1;
    if (!n && how > Reduction::sum) return refuse("IndexError", "a reduction of no elements");
    Shape rest(t);
    if (t->dims) rest.sizes[d] = 1;
    if (t->dims && !keep) rest.erase(d);
    Impl* made = make(dtype, t->storage->device, rest.dims, rest.sizes);
    Impl* at = where ? make(int64, t->storage->device, rest.dims, rest.sizes) : nullptr;
    if (!made || (where && !at)) return nullptr;
    Impl rows = *t;  // the first element of each run
    rows.dims = rest.dims;
    std::copy_n(rest.sizes, rest.dims, rows.sizes);
    std::copy_n(rest.strides, rest.dims, rows.strides);
    int64_t i = 0;
    for_each(&rows, [&](int64_t first) {
        int64_t position = 0;
        Number value{0, 0, is_real(t->dtype)};
        if (n) value = reduce_run(how, t, first, n, step, &position);
        store(made, i, value);
        if (at) store(at, i, {0, position, false});
        ++i;
    });
    wrote(made);
    if (at) wrote(at);
    if (where) *where = at;
    return made;
}

Impl* reduce_all(Reduction how, const Impl* t, int dtype) {
    const int64_t n = count(t);
    Impl* flat = reshape(t, 1, &n, true);
    Impl* made = flat ? reduce(how, flat, 0, false, dtype, nullptr) : nullptr;
    release(flat);
    return made;
}

Impl* sorted_order(const Impl* t, int64_t dim, bool descending) {
    const int d = wrap(dim, t->dims);
    if (d < 0) return nullptr;
    Impl* made = make(int64, t->storage->device, t->dims, t->sizes);
    if (!made || !count(t)) return made;
    const int64_t n = t->dims ? t->sizes[d] : 1, step = t->dims ? t->strides[d] : 1;
    Impl rows = *t, out = *made;
    if (t->dims) rows.sizes[d] = out.sizes[d] = 1;
    std::vector<int64_t> places;
    for_each(&out, [&](int64_t first) { places.push_back(first); });
    size_t run = 0;
    std::vector<int64_t> order((size_t)n);
    for_each(&rows, [&](int64_t first) {
        for (int64_t i = 0; i < n; ++i) order[(size_t)i] = i;
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
            const Number x = load(t, first + a * step), y = load(t, first + b * step);
            return descending ? exceeds(x, y) : exceeds(y, x);
        });
        for (int64_t i = 0; i < n; ++i)
            store(made, places[run] + i * (t->dims ? made->strides[d] : 1),
                  {0, order[(size_t)i], false});
        ++run;
    });
    wrote(made);
    return made;
}

Impl* gather(const Impl* t, int64_t dim, const Impl* index) {
    const int d = wrap(dim, t->dims);
    if (d < 0) return nullptr;
    if (index->dims != t->dims || is_real(index->dtype))
        return refuse("RuntimeError", "gather: an integer index of as many dimensions is expected");
    Impl* made = make(t->dtype, t->storage->device, index->dims, index->sizes);
    for (int64_t i = 0; made && i < count(made); ++i) {
        const int64_t from = read(index, i).whole;
        if (from < 0 || from >= (t->dims ? t->sizes[d] : 1)) {
            release(made);
            return refuse("IndexError", "index %lld is out of bounds", (long long)from);
        }
        int64_t at = 0, rest = i;
        for (int k = t->dims - 1; k >= 0; --k) {
            at += (k == d ? from : rest % index->sizes[k]) * t->strides[k];
            rest /= index->sizes[k];
        }
        store(made, i, load(t, at));
    }
    if (made) wrote(made);
    return made;
}

Impl* index_select(const Impl* t, int64_t dim, const Impl* rows) {
    const int d = wrap(dim, t->dims);
    if (d < 0) return nullptr;
    if (rows->dims != 1 || is_real(rows->dtype))
        return refuse("RuntimeError", "index_select: the index is a vector of integers");
    Shape s(t);
    s.sizes[d] = rows->sizes[0];
    Impl* made = make(t->dtype, t->storage->device, s.dims, s.sizes);
    for (int64_t i = 0; made && i < rows->sizes[0]; ++i) {
        Impl *to = select(made, d, i), *from = select(t, d, read(rows, i).whole);
        const bool copied = from && assign(to, from);
        release(to);
        release(from);
        if (copied) continue;
        release(made);
        return nullptr;
    }
    return made;
}

Impl* concatenate(const Impl* const* parts, int64_t n, int64_t dim) {
    if (!n) return refuse("ValueError", "torch.cat(): expected a non-empty list of Tensors");
    for (int64_t i = 0; i < n; ++i)
        if (!parts[i]) return refuse("RuntimeError", "the tensor is undefined");
    const int d = wrap(dim, parts[0]->dims);
    if (d < 0) return nullptr;
    Shape s(parts[0]);
    s.sizes[d] = 0;
    for (int64_t i = 0; i < n; ++i) {
        if (parts[i]->dims != s.dims) return refuse("RuntimeError", "cat: other dimensions");
        s.sizes[d] += parts[i]->sizes[d];
    }
    Impl* made = make(parts[0]->dtype, parts[0]->storage->device, s.dims, s.sizes);
    int64_t from = 0;
    for (int64_t i = 0; made && i < n; from += parts[i++]->sizes[d]) {
        Impl* to = slice(made, d, from, from + parts[i]->sizes[d], 1);
        const bool copied = assign(to, parts[i]);
        release(to);
        if (copied) continue;
        release(made);
        return nullptr;
    }
    return made;
}

}  // namespace simt::lite
