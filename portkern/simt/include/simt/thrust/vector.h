// host_vector and device_vector: owned memory that is copied whole.
#pragma once
#include <initializer_list>
#include <memory>
#include <vector>

#include "core.h"

namespace thrust {
namespace detail {

template <class T, bool Device>
class vector {
  public:
    using value_type = T;
    using size_type = size_t;
    using difference_type = ptrdiff_t;
    using pointer = std::conditional_t<Device, device_ptr<T>, T*>;
    using const_pointer = std::conditional_t<Device, device_ptr<const T>, const T*>;
    using iterator = pointer;
    using const_iterator = const_pointer;
    using reference = std::conditional_t<Device, device_reference<T>, T&>;
    using const_reference = std::conditional_t<Device, device_reference<const T>, const T&>;
    using reverse_iterator = std::reverse_iterator<iterator>;

    vector() = default;
    template <class N, class = std::enable_if_t<std::is_integral<N>::value>>
    explicit vector(N n) { resize((size_t)n); }
    template <class N, class = std::enable_if_t<std::is_integral<N>::value>>
    vector(N n, const T& value) { resize((size_t)n, value); }
    template <class It, class = typename std::iterator_traits<It>::iterator_category, class = void>
    vector(It first, It last) { assign(first, last); }
    vector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
    vector(const vector& b) { assign(b.begin(), b.end()); }
    vector(vector&& b) noexcept { swap(b); }
    template <bool Other>
    vector(const vector<T, Other>& b) { assign(b.begin(), b.end()); }
    template <class U, bool Other, class = std::enable_if_t<!std::is_same<U, T>::value>, class = void>
    vector(const vector<U, Other>& b) { assign(b.begin(), b.end()); }
    template <class A>
    vector(const std::vector<T, A>& b) { assign(b.begin(), b.end()); }
    ~vector() { release(); }

    vector& operator=(const vector& b) { return this == &b ? *this : (assign(b.begin(), b.end()), *this); }
    vector& operator=(vector&& b) noexcept { return swap(b), *this; }
    template <class U, bool Other>
    vector& operator=(const vector<U, Other>& b) { return assign(b.begin(), b.end()), *this; }
    template <class U, class A>
    vector& operator=(const std::vector<U, A>& b) { return assign(b.begin(), b.end()), *this; }
    vector& operator=(std::initializer_list<T> b) { return assign(b.begin(), b.end()), *this; }

    iterator begin() { return iterator(at_); }
    iterator end() { return iterator(at_ + size_); }
    const_iterator begin() const { return const_iterator(at_); }
    const_iterator end() const { return const_iterator(at_ + size_); }
    const_iterator cbegin() const { return begin(); }
    const_iterator cend() const { return end(); }
    reverse_iterator rbegin() { return reverse_iterator(end()); }
    reverse_iterator rend() { return reverse_iterator(begin()); }
    pointer data() { return begin(); }
    const_pointer data() const { return begin(); }
    reference operator[](size_t i) { return begin()[(ptrdiff_t)i]; }
    const_reference operator[](size_t i) const { return begin()[(ptrdiff_t)i]; }
    reference front() { return (*this)[0]; }
    reference back() { return (*this)[size_ - 1]; }
    const_reference front() const { return (*this)[0]; }
    const_reference back() const { return (*this)[size_ - 1]; }
    size_t size() const { return size_; }
    size_t capacity() const { return capacity_; }
    bool empty() const { return !size_; }

    void reserve(size_t n) {
        if (n <= capacity_) return;
        T* more = allocate(n);
        T* old = at_;
        const size_t kept = size_;
        if (kept)
            run(where(), "thrust::vector", [=] {
                for (size_t i = 0; i < kept; ++i) new ((void*)(more + i)) T(std::move(old[i]));
            });
        release();
        at_ = more;
        size_ = kept;
        capacity_ = n;
    }
    void resize(size_t n) { resize(n, T()); }
    void resize(size_t n, const T& value) {
        reserve(n);
        T* at = at_;
        if (n > size_) construct(size_, n, [value](size_t) -> const T& { return value; });
        if (n < size_ && !std::is_trivially_destructible<T>::value) destroy(at + n, size_ - n);
        size_ = n;
    }
    template <class It, class = typename std::iterator_traits<It>::iterator_category>
    void assign(It first, It last) {
        const size_t n = (size_t)std::distance(first, last);
        clear();
        reserve(n);
        size_ = n;
        copy_in(0, first, n);
    }
    template <class N, class = std::enable_if_t<std::is_integral<N>::value>>
    void assign(N n, const T& value) { clear(), resize((size_t)n, value); }
    void clear() { resize_down(0); }
    void shrink_to_fit() {}
    void push_back(const T& value) {
        if (size_ == capacity_) reserve(capacity_ ? 2 * capacity_ : 8);
        resize(size_ + 1, value);
    }
    void pop_back() { resize_down(size_ - 1); }
    iterator erase(iterator first, iterator last) {
        T* to = at_ + (first - begin());
        const T* from = at_ + (last - begin());
        const size_t n = (size_t)(end() - last), gone = (size_t)(last - first);
        run(where(), "thrust::vector", [=] {
            for (size_t i = 0; i < n; ++i) to[i] = from[i];
        });
        resize_down(size_ - gone);
        return first;
    }
    iterator erase(iterator at) { return erase(at, at + 1); }
    template <class It, class = typename std::iterator_traits<It>::iterator_category>
    void insert(iterator at, It first, It last) {
        const size_t before = (size_t)(at - begin()), n = (size_t)std::distance(first, last);
        vector tail(at, end());
        resize_down(before);
        resize(before + n + tail.size());
        copy_in(before, first, n);
        copy_in(before + n, tail.begin(), tail.size());
    }
    iterator insert(iterator at, const T& value) {
        const size_t before = (size_t)(at - begin());
        insert(at, &value, &value + 1);
        return begin() + (ptrdiff_t)before;
    }
    void swap(vector& b) {
        std::swap(at_, b.at_), std::swap(size_, b.size_), std::swap(capacity_, b.capacity_);
    }
    friend void swap(vector& a, vector& b) { a.swap(b); }

  private:
    static policy<Device> where() { return {}; }
    static T* allocate(size_t n) {
        void* p = nullptr;
        if (Device) expect(simt::api::allocate(&p, n * sizeof(T), simt::api::Space::device, nullptr));
        else p = ::operator new(n * sizeof(T), std::align_val_t(alignof(T)));
        return static_cast<T*>(p);
    }
    void release() {
        if (at_ && !std::is_trivially_destructible<T>::value) destroy(at_, size_);
        if (!at_) return;
        if (Device) simt::api::release((void*)at_, simt::api::Space::device);
        else ::operator delete((void*)at_, std::align_val_t(alignof(T)));
        at_ = nullptr;
        size_ = capacity_ = 0;
    }
    static void destroy(T* from, size_t n) {
        run(where(), "thrust::vector", [=] {
            for (size_t i = 0; i < n; ++i) from[i].~T();
        });
    }
    void resize_down(size_t n) {
        if (!std::is_trivially_destructible<T>::value && n < size_) destroy(at_ + n, size_ - n);
        size_ = n;
    }
    template <class F>
    void construct(size_t begin, size_t end, F value) {
        T* at = at_;
        run(where(), "thrust::vector", [=]() mutable {
            for (size_t i = begin; i < end; ++i) new ((void*)(at + i)) T(value(i));
        });
    }
    // Whole arrays of one type are one copy; anything else comes element by element.
    template <class It>
    void copy_in(size_t to, It first, size_t n) {
        using Raw = raw_t<It>;
        constexpr bool from_device = on_device<It>();
        if (!n) return;
        if constexpr (std::is_same<Raw, T*>::value || std::is_same<Raw, const T*>::value) {
            if constexpr (std::is_trivially_copyable<T>::value) {
                expect(simt::api::copy((void*)(at_ + to), raw(first), n * sizeof(T),
                                       simt::api::Copy::any, nullptr, nullptr));
                return;
            }
        }
        using Tag = typename std::iterator_traits<It>::iterator_category;
        constexpr bool random = std::is_base_of<std::random_access_iterator_tag, Tag>::value;
        if constexpr (from_device && !Device) {
            const vector<T, true> staged(first, first + (ptrdiff_t)n);
            copy_in(to, staged.begin(), n);
        } else if constexpr (random && from_device == Device) {
            auto from = raw(first);
            construct(to, to + n, [from, to](size_t i) { return (T)from[(ptrdiff_t)(i - to)]; });
        } else {
            std::vector<std::conditional_t<std::is_same<T, bool>::value, char, T>> kept;
            kept.reserve(n);
            for (size_t i = 0; i < n; ++i, ++first) kept.push_back((T)*first);
            expect(simt::api::copy((void*)(at_ + to), kept.data(), n * sizeof(T),
                                   simt::api::Copy::any, nullptr, nullptr));
        }
    }

    T* at_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};

template <class T, bool A, bool B>
inline bool operator==(const vector<T, A>& a, const vector<T, B>& b) {
    if (a.size() != b.size()) return false;
    const vector<T, false> x(a), y(b);
    for (size_t i = 0; i < x.size(); ++i)
        if (!(x[i] == y[i])) return false;
    return true;
}
template <class T, bool A, class Allocator>
inline bool operator==(const vector<T, A>& a, const std::vector<T, Allocator>& b) {
    return a == vector<T, false>(b);
}
template <class T, bool A, class Allocator>
inline bool operator==(const std::vector<T, Allocator>& a, const vector<T, A>& b) {
    return b == a;
}
template <class T, bool A, bool B>
inline bool operator!=(const vector<T, A>& a, const vector<T, B>& b) {
    return !(a == b);
}

}  // namespace detail

template <class T>
using device_allocator = std::allocator<T>;
template <class T>
using device_malloc_allocator = std::allocator<T>;
template <class T, class Allocator = void>
class host_vector : public detail::vector<T, false> {
  public:
    using detail::vector<T, false>::vector;
    using detail::vector<T, false>::operator=;
    host_vector() = default;
    template <class U, bool Other>
    host_vector(const detail::vector<U, Other>& b) : detail::vector<T, false>(b) {}
};
template <class T, class Allocator = void>
class device_vector : public detail::vector<T, true> {
  public:
    using detail::vector<T, true>::vector;
    using detail::vector<T, true>::operator=;
    device_vector() = default;
    template <class U, bool Other>
    device_vector(const detail::vector<U, Other>& b) : detail::vector<T, true>(b) {}
};
template <class T, class Allocator = void>
using universal_vector = host_vector<T>;

}  // namespace thrust
