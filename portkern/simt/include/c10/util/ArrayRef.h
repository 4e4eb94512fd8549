// A view of consecutive elements, as PyTorch passes sizes and strides.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <vector>

namespace c10 {

template <class T>
class ArrayRef {
  public:
    using value_type = T;
    using iterator = const T*;
    using const_iterator = const T*;

    ArrayRef() = default;
    ArrayRef(const T& one) : data_(&one), size_(1) {}
    ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
    ArrayRef(const T* begin, const T* end) : data_(begin), size_((size_t)(end - begin)) {}
    ArrayRef(const std::vector<T>& v) : data_(v.data()), size_(v.size()) {}
    template <size_t N>
    ArrayRef(const T (&array)[N]) : data_(array), size_(N) {}
    // Lives as long as the full expression, like the list: g++ warns of any other use as well.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
#endif
    ArrayRef(const std::initializer_list<T>& list) : data_(list.begin()), size_(list.size()) {}
#pragma GCC diagnostic pop

    const T* begin() const { return data_; }
    const T* end() const { return data_ + size_; }
    const T* data() const { return data_; }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    const T& operator[](size_t i) const { return data_[i]; }
    const T& at(size_t i) const { return data_[i]; }
    const T& front() const { return data_[0]; }
    const T& back() const { return data_[size_ - 1]; }
    ArrayRef slice(size_t from, size_t count) const { return {data_ + from, count}; }
    ArrayRef slice(size_t from) const { return {data_ + from, size_ - from}; }
    std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
    bool equals(ArrayRef b) const {
        if (size_ != b.size_) return false;
        for (size_t i = 0; i < size_; ++i)
            if (!(data_[i] == b.data_[i])) return false;
        return true;
    }
    friend bool operator==(ArrayRef a, ArrayRef b) { return a.equals(b); }
    friend bool operator!=(ArrayRef a, ArrayRef b) { return !a.equals(b); }
    friend std::ostream& operator<<(std::ostream& out, ArrayRef a) {
        out << '[';
        for (size_t i = 0; i < a.size_; ++i) out << (i ? ", " : "") << a.data_[i];
        return out << ']';
    }

  private:
    const T* data_ = nullptr;
    size_t size_ = 0;
};

using IntArrayRef = ArrayRef<int64_t>;

}  // namespace c10
