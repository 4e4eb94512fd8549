// thrust's vectors and what runs its algorithms. One that reads or writes device memory is a launch
// of one thread, whose accesses are checked like a kernel's; called in a kernel, or over host memory,
// it is a loop where it stands.
#pragma once
#include <cstddef>
#include <iostream>  // programs count on it
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../graph.h"

namespace thrust {

struct device_system_tag {};
struct host_system_tag {};
struct any_system_tag {};  // counters and constants: in no memory
struct random_access_device_iterator_tag : std::random_access_iterator_tag {};

class system_error : public std::runtime_error {
  public:
    explicit system_error(int error)
        : std::runtime_error(simt::api::error_text(error)), error_(error) {}
    int code() const { return error_; }

  private:
    int error_;
};
namespace system {
using thrust::system_error;
}

namespace detail {
inline void expect(int error) {
    if (error) throw system_error(error);
}
// A value of device memory: in a kernel where it is, on the host by a copy.
template <class T>
inline T load(const T* p) {
    if (simt::block) return *p;
    alignas(T) unsigned char kept[sizeof(T)];
    expect(simt::api::copy(kept, p, sizeof(T), simt::api::Copy::to_host, nullptr, nullptr));
    return *reinterpret_cast<T*>(kept);
}
template <class T>
inline void store(T* p, const T& value) {
    if (simt::block) *p = value;
    else expect(simt::api::copy(p, &value, sizeof(T), simt::api::Copy::to_device, nullptr, nullptr));
}
}  // namespace detail

template <class T>
class device_ptr;

template <class T>
class device_reference {
  public:
    using value_type = std::remove_cv_t<T>;
    using pointer = device_ptr<T>;
    explicit device_reference(T* p) : p_(p) {}
    device_reference(const device_reference&) = default;
    template <class U, class = std::enable_if_t<std::is_convertible<U*, T*>::value>>
    device_reference(const device_reference<U>& b) : p_(b.raw()) {}
    operator value_type() const { return detail::load<value_type>(p_); }
    const device_reference& operator=(const value_type& v) const {
        detail::store(p_, v);
        return *this;
    }
    const device_reference& operator=(const device_reference& b) const {
        return *this = (value_type)b;
    }
    device_reference& operator=(const device_reference& b) {
        detail::store(p_, (value_type)b);
        return *this;
    }
    template <class U>
    const device_reference& operator=(const device_reference<U>& b) const {
        return *this = (value_type)(U)b;
    }
    device_ptr<T> operator&() const { return device_ptr<T>(p_); }
    T* raw() const { return p_; }
#define SIMT_THRUST_ASSIGN(op)                                                                     \
    template <class U>                                                                             \
    const device_reference& operator op##=(const U& v) const {                                     \
        return *this = (value_type)((value_type)*this op v);                                       \
    }
    SIMT_THRUST_ASSIGN(+) SIMT_THRUST_ASSIGN(-) SIMT_THRUST_ASSIGN(*) SIMT_THRUST_ASSIGN(/)
    SIMT_THRUST_ASSIGN(%) SIMT_THRUST_ASSIGN(|) SIMT_THRUST_ASSIGN(&) SIMT_THRUST_ASSIGN(^)
#undef SIMT_THRUST_ASSIGN
    const device_reference& operator++() const { return *this += 1; }
    const device_reference& operator--() const { return *this -= 1; }
    friend void swap(device_reference a, device_reference b) {
        const value_type kept = a;
        a = (value_type)b;
        b = kept;
    }
    template <class C, class Traits>
    friend std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& out,
                                                     const device_reference& r) {
        return out << (value_type)r;
    }

  private:
    T* p_;
};

// What a random-access iterator over `Self::at(n)` needs; Self has move(n) and position().
template <class Self, class Value, class Reference, class Pointer = Value*>
struct iterator_facade_ {
    using iterator_category = std::random_access_iterator_tag;
    using value_type = Value;
    using difference_type = ptrdiff_t;
    using pointer = Pointer;
    using reference = Reference;
    Reference operator*() const { return self().at(0); }
    Reference operator[](ptrdiff_t n) const { return self().at(n); }
    Self operator+(ptrdiff_t n) const { return moved(n); }
    Self operator-(ptrdiff_t n) const { return moved(-n); }
    friend Self operator+(ptrdiff_t n, const Self& it) { return it + n; }
    Self& operator+=(ptrdiff_t n) { return self().move(n), self(); }
    Self& operator-=(ptrdiff_t n) { return self().move(-n), self(); }
    Self& operator++() { return *this += 1; }
    Self& operator--() { return *this += -1; }
    Self operator++(int) {
        Self before = self();
        self().move(1);
        return before;
    }
    Self operator--(int) {
        Self before = self();
        self().move(-1);
        return before;
    }

  private:
    Self moved(ptrdiff_t n) const {
        Self it = self();
        it.move(n);
        return it;
    }
    Self& self() { return static_cast<Self&>(*this); }
    const Self& self() const { return static_cast<const Self&>(*this); }
};
#define SIMT_THRUST_COMPARE(op)                                                                    \
    template <class A, class B, class = decltype(std::declval<const A&>().position()),             \
              class = decltype(std::declval<const B&>().position())>                               \
    inline bool operator op(const A& a, const B& b) {                                              \
        return a.position() op b.position();                                                       \
    }
SIMT_THRUST_COMPARE(==) SIMT_THRUST_COMPARE(!=) SIMT_THRUST_COMPARE(<) SIMT_THRUST_COMPARE(<=)
SIMT_THRUST_COMPARE(>) SIMT_THRUST_COMPARE(>=)
#undef SIMT_THRUST_COMPARE
template <class A, class B, class = decltype(std::declval<const A&>().position()),
          class = decltype(std::declval<const B&>().position())>
inline ptrdiff_t operator-(const A& a, const B& b) {
    return a.position() - b.position();
}

// Both the pointer and the iterator of device memory.
template <class T>
class device_ptr : public iterator_facade_<device_ptr<T>, std::remove_cv_t<T>, device_reference<T>,
                                           device_ptr<T>> {
  public:
    using element_type = T;
    using raw_pointer = T*;
    using system_tag = device_system_tag;
    device_ptr() : p_(nullptr) {}
    device_ptr(std::nullptr_t) : p_(nullptr) {}
    explicit device_ptr(T* p) : p_(p) {}
    template <class U, class = std::enable_if_t<std::is_convertible<U*, T*>::value>>
    device_ptr(const device_ptr<U>& b) : p_(b.get()) {}
    T* get() const { return p_; }
    T* raw() const { return p_; }
    T* base() const { return p_; }
    device_reference<T> at(ptrdiff_t n) const { return device_reference<T>(p_ + n); }
    void move(ptrdiff_t n) { p_ += n; }
    ptrdiff_t position() const { return (ptrdiff_t)((intptr_t)p_ / (ptrdiff_t)sizeof(T)); }
    explicit operator bool() const { return p_ != nullptr; }

  private:
    T* p_;
};
template <>
class device_ptr<void> {
  public:
    device_ptr(std::nullptr_t = nullptr) : p_(nullptr) {}
    explicit device_ptr(void* p) : p_(p) {}
    template <class T>
    device_ptr(const device_ptr<T>& b) : p_((void*)b.get()) {}
    void* get() const { return p_; }
    template <class T>
    explicit operator device_ptr<T>() const { return device_ptr<T>((T*)p_); }

  private:
    void* p_;
};

template <class T>
inline device_ptr<T> device_pointer_cast(T* p) { return device_ptr<T>(p); }
template <class T>
inline device_ptr<T> device_pointer_cast(const device_ptr<T>& p) { return p; }
template <class T>
inline T* raw_pointer_cast(T* p) { return p; }
template <class T>
inline T* raw_pointer_cast(const device_ptr<T>& p) { return p.get(); }
template <class T>
inline T& raw_reference_cast(T& r) { return r; }
template <class T>
inline T& raw_reference_cast(const device_reference<T>& r) { return *r.raw(); }

template <class T>
inline device_ptr<T> device_malloc(size_t n) {
    void* p = nullptr;
    detail::expect(simt::api::allocate(&p, n * sizeof(T), simt::api::Space::device, nullptr));
    return device_ptr<T>((T*)p);
}
inline device_ptr<void> device_malloc(size_t bytes) {
    return device_malloc<char>(bytes);
}
template <class T>
inline void device_free(device_ptr<T> p) {
    detail::expect(simt::api::release((void*)p.get(), simt::api::Space::device));
}

// ---- where an algorithm runs ----------------------------------------------------------------

namespace detail {

struct policy_base {};
template <bool Launches>
struct policy : policy_base {
    void* stream = nullptr;
    template <class Stream>
    policy on(Stream s) const {
        policy p = *this;
        p.stream = (void*)s;
        return p;
    }
    template <class Allocator>
    policy operator()(Allocator&&) const { return *this; }
};
template <class P>
using is_policy = std::is_base_of<policy_base, std::decay_t<P>>;

template <class T, class = void>
struct system_of { using type = any_system_tag; };
template <class T>
struct system_of<T*> { using type = host_system_tag; };
template <class T>
struct system_of<T, std::void_t<typename T::system_tag>> { using type = typename T::system_tag; };
template <class... A>
constexpr bool on_device() {
    return (std::is_same<typename system_of<std::decay_t<A>>::type, device_system_tag>::value || ...);
}

// An iterator as the loop sees it: without references to device memory that copy.
template <class It>
inline auto raw(const It& it, int) -> decltype(it.raw()) { return it.raw(); }
template <class It>
inline It raw(const It& it, long) { return it; }
template <class It>
inline auto raw(const It& it) { return raw(it, 0); }
template <class It>
using raw_t = decltype(raw(std::declval<const It&>()));

template <class It>
using value_of = typename std::iterator_traits<It>::value_type;
// What an output iterator takes; the input's where an output has no type of its own.
template <class Out, class In>
using kept_of = std::conditional_t<std::is_void<value_of<Out>>::value, value_of<In>, value_of<Out>>;

template <bool Launches, class F>
inline void run(const policy<Launches>& p, const char* name, F work) {
    if (Launches && !simt::block) {
        simt::launch(simt::Shape(dim3(1), dim3(1), 0, p.stream), name, work);
        expect(simt::api::launch_result());
    } else {
        work();
    }
}

// Memory that the loop uses beside its ranges, where it runs.
template <class T>
class scratch {
  public:
    template <bool Launches>
    scratch(const policy<Launches>&, size_t n) : device_(Launches && !simt::block) {
        const size_t bytes = (n ? n : 1) * sizeof(T);
        if (device_) at_ = raw_pointer_cast(device_ptr<T>(device_malloc<T>(n ? n : 1)));
        else at_ = static_cast<T*>(::operator new(bytes, std::align_val_t(alignof(T))));
    }
    scratch(const scratch&) = delete;
    ~scratch() {
        if (device_) simt::api::release((void*)at_, simt::api::Space::device);
        else ::operator delete((void*)at_, std::align_val_t(alignof(T)));
    }
    T* get() const { return at_; }

  private:
    T* at_;
    bool device_;
};

// The result of work(), which a launch leaves in device memory.
template <class R, bool Launches, class F>
inline R answer(const policy<Launches>& p, const char* name, F work) {
    if (!Launches || simt::block) return work();
    if (simt::api::capturing(p.stream)) throw system_error(900);  // its result is needed now
    scratch<R> out(p, 1);
    R* to = out.get();
    run(p, name, [work, to]() mutable { new ((void*)to) R(work()); });
    return load(to);
}

}  // namespace detail

template <class Derived = void>
struct execution_policy : detail::policy<true> {};
static const detail::policy<false> host{}, seq{};
static const detail::policy<true> device{};
namespace cuda {
static const detail::policy<true> par{}, par_nosync{};
}
namespace hip {
static const detail::policy<true> par{}, par_nosync{};
}
namespace cuda_cub {
static const detail::policy<true> par{};
}
namespace omp {
static const detail::policy<false> par{};
}
namespace cpp {
static const detail::policy<false> par{};
}
namespace system {
namespace cuda = thrust::cuda;
namespace hip = thrust::hip;
namespace omp = thrust::omp;
namespace cpp = thrust::cpp;
}  // namespace system

template <class It>
using iterator_traits = std::iterator_traits<It>;
template <class It>
struct iterator_value { using type = typename std::iterator_traits<It>::value_type; };
template <class It>
using iterator_value_t = typename iterator_value<It>::type;
template <class It>
struct iterator_difference { using type = typename std::iterator_traits<It>::difference_type; };
template <class It>
struct iterator_reference { using type = typename std::iterator_traits<It>::reference; };
template <class It>
struct iterator_system { using type = typename detail::system_of<It>::type; };
template <class It>
inline auto distance(It first, It last) { return last - first; }
template <class It, class N>
inline void advance(It& it, N n) { it += n; }

using std::get;
using std::make_pair;
using std::make_tuple;
using std::pair;
using std::swap;
using std::tie;
using std::tuple;
using std::tuple_element;
using std::tuple_size;

}  // namespace thrust
