// What all of cub shares: functors, pairs, storage, iterators, how a thread finds its place.
#pragma once
#include <cstddef>
#include <iterator>
#include <limits>
#include <type_traits>

#include "../core.h"
#include "../groups.h"
#include "../warp.h"

// hipCUB is the same library under another name.
#if SIMT_HIP
#define SIMT_CUB hipcub
#else
#define SIMT_CUB cub
#endif

// What the hardware's warp is where a constant is needed; at run time it is warpSize.
#if defined(SIMT_CONSTEXPR_WARP)
#define SIMT_WARP_CONSTANT SIMT_CONSTEXPR_WARP
#elif defined(__AMDGCN_WAVEFRONT_SIZE)
#define SIMT_WARP_CONSTANT __AMDGCN_WAVEFRONT_SIZE
#else
#define SIMT_WARP_CONSTANT (SIMT_HIP ? 64 : 32)
#endif
#define CUB_PTX_WARP_THREADS SIMT_WARP_CONSTANT
#define CUB_WARP_THREADS(ignored) SIMT_WARP_CONSTANT
#define CUB_LOG_WARP_THREADS(ignored) (SIMT_WARP_CONSTANT == 64 ? 6 : 5)
#define CUB_MAX(a, b) ((a) > (b) ? (a) : (b))
#define CUB_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CUB_QUOTIENT_FLOOR(x, y) ((x) / (y))
#define CUB_QUOTIENT_CEILING(x, y) (((x) + (y)-1) / (y))
#define CUB_ROUND_UP_NEAREST(x, y) (CUB_QUOTIENT_CEILING(x, y) * (y))
#define CUB_ROUND_DOWN_NEAREST(x, y) (((x) / (y)) * (y))
#define CUB_IS_INT128_ENABLED 0
#define CUB_VERSION 200800

namespace SIMT_CUB {

// ---- functors ---------------------------------------------------------------------------

struct Equality {
    template <class A, class B>
    constexpr bool operator()(const A& a, const B& b) const { return a == b; }
};
struct Inequality {
    template <class A, class B>
    constexpr bool operator()(const A& a, const B& b) const { return a != b; }
};
template <class Op>
struct InequalityWrapper {
    Op op;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const { return !op(a, b); }
};
struct Sum {
    template <class A, class B>
    constexpr auto operator()(const A& a, const B& b) const { return a + b; }
};
struct Difference {
    template <class A, class B>
    constexpr auto operator()(const A& a, const B& b) const { return a - b; }
};
struct Division {
    template <class A, class B>
    constexpr auto operator()(const A& a, const B& b) const { return a / b; }
};
struct Max {
    template <class A, class B>
    constexpr std::common_type_t<A, B> operator()(const A& a, const B& b) const {
        return a < b ? b : a;
    }
};
struct Min {
    template <class A, class B>
    constexpr std::common_type_t<A, B> operator()(const A& a, const B& b) const {
        return b < a ? b : a;
    }
};
template <class To>
struct CastOp {
    template <class A>
    To operator()(A&& a) const { return (To)a; }
};
template <class Op>
struct SwizzleScanOp {
    Op op;
    explicit SwizzleScanOp(Op op) : op(op) {}
    template <class T>
    T operator()(const T& a, const T& b) { return op(b, a); }
};

struct NullType {
    template <class T>
    NullType& operator=(const T&) { return *this; }
    bool operator==(const NullType&) const { return true; }
    bool operator!=(const NullType&) const { return false; }
};
template <int N>
struct Int2Type {
    enum { VALUE = N };
};

template <class K, class V>
struct KeyValuePair {
    using Key = K;
    using Value = V;
    K key;
    V value;
    KeyValuePair() = default;
    KeyValuePair(const K& key, const V& value) : key(key), value(value) {}
    bool operator==(const KeyValuePair& b) const { return key == b.key && value == b.value; }
    bool operator!=(const KeyValuePair& b) const { return !(*this == b); }
};
// Of equal values, the one with the lower key.
struct ArgMax {
    template <class K, class V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return a.value < b.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};
struct ArgMin {
    template <class K, class V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};
// Sums runs of equal keys; pairs are (length or new segment, value).
template <class Op>
struct ReduceBySegmentOp {
    Op op;
    template <class Pair>
    Pair operator()(const Pair& a, const Pair& b) const {
        return Pair(a.key + b.key, b.key ? b.value : (decltype(a.value))op(a.value, b.value));
    }
};
template <class Op>
struct ReduceByKeyOp {
    Op op;
    template <class Pair>
    Pair operator()(const Pair& a, const Pair& b) const {
        return a.key == b.key ? Pair(b.key, op(a.value, b.value)) : b;
    }
};

template <class T>
struct DoubleBuffer {
    T* d_buffers[2];
    int selector = 0;
    DoubleBuffer() : d_buffers{nullptr, nullptr} {}
    DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
    T* Current() { return d_buffers[selector]; }
    T* Alternate() { return d_buffers[selector ^ 1]; }
};

// Storage without construction, so that a TempStorage may stand in shared memory and in unions.
template <class T>
struct Uninitialized {
    alignas(T) unsigned char storage[sizeof(T)];
    T& Alias() { return *reinterpret_cast<T*>(storage); }
};

template <int N, int COUNT = 0>
struct Log2 {
    enum { VALUE = (int)Log2<(N + 1) / 2, COUNT + 1>::VALUE };  // rounded up
};
template <int COUNT>
struct Log2<1, COUNT> {
    enum { VALUE = COUNT };
};
template <int N>
struct PowerOfTwo {
    enum { VALUE = (N & (N - 1)) == 0 };
};
template <class A, class B>
constexpr A DivideAndRoundUp(A a, B b) {
    return (A)((a + b - 1) / b);
}

// ---- who am I ---------------------------------------------------------------------------

static inline unsigned LaneId() { return (unsigned)simt::lane_id(); }
static inline unsigned WarpId() { return (unsigned)simt::warp_id(); }
static inline int RowMajorTid(int x, int y, int) {
    return (int)((threadIdx.z * y + threadIdx.y) * x + threadIdx.x);
}

// ---- loads and stores with hints, which are hints ---------------------------------------

enum CacheLoadModifier {
    LOAD_DEFAULT, LOAD_CA, LOAD_CG, LOAD_CS, LOAD_CV, LOAD_LDG, LOAD_VOLATILE
};
enum CacheStoreModifier {
    STORE_DEFAULT, STORE_WB, STORE_CG, STORE_CS, STORE_WT, STORE_VOLATILE
};
template <CacheLoadModifier, class It>
static inline auto ThreadLoad(It from) {
    return (typename std::iterator_traits<It>::value_type)*from;
}
template <CacheStoreModifier, class It, class T>
static inline void ThreadStore(It to, T value) {
    *to = value;
}

template <class T, int N, class Op>
static inline T ThreadReduce(T (&items)[N], Op op) {
    T total = items[0];
    for (int i = 1; i < N; ++i) total = op(total, items[i]);
    return total;
}
template <class T, int N, class Op>
static inline T ThreadReduce(T (&items)[N], Op op, T before) {
    for (int i = 0; i < N; ++i) before = op(before, items[i]);
    return before;
}

// ---- iterators --------------------------------------------------------------------------

}  // namespace SIMT_CUB

namespace simt {

// What a random-access iterator needs beside `value()` and its position. Self: (base, position).
template <class Self, class Value, class Reference>
struct IteratorBase {
    using iterator_category = std::random_access_iterator_tag;
    using value_type = Value;
    using difference_type = ptrdiff_t;
    using pointer = Value*;
    using reference = Reference;

    Reference operator*() const { return self().at(0); }
    template <class N>
    Reference operator[](N n) const { return self().at((ptrdiff_t)n); }
    template <class N>
    Self operator+(N n) const { return Self(self()).move((ptrdiff_t)n); }
    template <class N, class = std::enable_if_t<std::is_integral<N>::value>>
    Self operator-(N n) const { return Self(self()).move(-(ptrdiff_t)n); }
    ptrdiff_t operator-(const Self& b) const { return self().position() - b.position(); }
    template <class N>
    Self& operator+=(N n) { return self().move((ptrdiff_t)n); }
    template <class N>
    Self& operator-=(N n) { return self().move(-(ptrdiff_t)n); }
    Self& operator++() { return self().move(1); }
    Self& operator--() { return self().move(-1); }
    Self operator++(int) {
        Self before = self();
        self().move(1);
        return before;
    }
    bool operator==(const Self& b) const { return self().position() == b.position(); }
    bool operator!=(const Self& b) const { return self().position() != b.position(); }
    bool operator<(const Self& b) const { return self().position() < b.position(); }

  private:
    Self& self() { return static_cast<Self&>(*this); }
    const Self& self() const { return static_cast<const Self&>(*this); }
};

// An iterator over another, or over a pointer.
template <class Self, class Base, class Value, class Reference>
struct IteratorOver : IteratorBase<Self, Value, Reference> {
    Base base;
    ptrdiff_t offset = 0;
    explicit IteratorOver(Base base) : base(base) {}
    Self& move(ptrdiff_t n) {
        offset += n;
        return static_cast<Self&>(*this);
    }
    ptrdiff_t position() const { return offset; }
};

template <class It>
using ValueOf = typename std::iterator_traits<It>::value_type;

}  // namespace simt

namespace SIMT_CUB {

template <class T, class Offset = ptrdiff_t>
struct CountingInputIterator : simt::IteratorBase<CountingInputIterator<T, Offset>, T, T> {
    T first;
    ptrdiff_t offset = 0;
    explicit CountingInputIterator(const T& first) : first(first) {}
    CountingInputIterator& move(ptrdiff_t n) { return offset += n, *this; }
    ptrdiff_t position() const { return offset; }
    T at(ptrdiff_t n) const { return (T)(first + (T)(offset + n)); }
};

template <class T, class Offset = ptrdiff_t>
struct ConstantInputIterator : simt::IteratorBase<ConstantInputIterator<T, Offset>, T, T> {
    T value;
    ptrdiff_t offset;
    explicit ConstantInputIterator(T value, Offset offset = 0) : value(value), offset(offset) {}
    ConstantInputIterator& move(ptrdiff_t n) { return offset += n, *this; }
    ptrdiff_t position() const { return offset; }
    T at(ptrdiff_t) const { return value; }
};

template <class T, class Op, class It, class Offset = ptrdiff_t>
struct TransformInputIterator
    : simt::IteratorOver<TransformInputIterator<T, Op, It, Offset>, It, T, T> {
    Op op;
    TransformInputIterator(It base, Op op)
        : simt::IteratorOver<TransformInputIterator, It, T, T>(base), op(op) {}
    T at(ptrdiff_t n) const { return const_cast<Op&>(op)(this->base[this->offset + n]); }
};

// Elements with their indices.
template <class It, class Offset = ptrdiff_t, class T = simt::ValueOf<It>>
struct ArgIndexInputIterator
    : simt::IteratorOver<ArgIndexInputIterator<It, Offset, T>, It, KeyValuePair<Offset, T>,
                         KeyValuePair<Offset, T>> {
    using Pair = KeyValuePair<Offset, T>;
    explicit ArgIndexInputIterator(It base)
        : simt::IteratorOver<ArgIndexInputIterator, It, Pair, Pair>(base) {}
    Pair at(ptrdiff_t n) const {
        return Pair((Offset)(this->offset + n), this->base[this->offset + n]);
    }
};

template <CacheLoadModifier MODIFIER, class T, class Offset = ptrdiff_t>
struct CacheModifiedInputIterator
    : simt::IteratorOver<CacheModifiedInputIterator<MODIFIER, T, Offset>, const T*, T, T> {
    explicit CacheModifiedInputIterator(const T* base)
        : simt::IteratorOver<CacheModifiedInputIterator, const T*, T, T>(base) {}
    T at(ptrdiff_t n) const { return this->base[this->offset + n]; }
};

template <CacheStoreModifier MODIFIER, class T, class Offset = ptrdiff_t>
struct CacheModifiedOutputIterator
    : simt::IteratorOver<CacheModifiedOutputIterator<MODIFIER, T, Offset>, T*, T, T&> {
    explicit CacheModifiedOutputIterator(T* base)
        : simt::IteratorOver<CacheModifiedOutputIterator, T*, T, T&>(base) {}
    T& at(ptrdiff_t n) const { return this->base[this->offset + n]; }
};

template <class Offset = ptrdiff_t>
struct DiscardOutputIterator : simt::IteratorBase<DiscardOutputIterator<Offset>, void, NullType> {
    ptrdiff_t offset;
    explicit DiscardOutputIterator(Offset offset = 0) : offset(offset) {}
    DiscardOutputIterator& move(ptrdiff_t n) { return offset += n, *this; }
    ptrdiff_t position() const { return offset; }
    NullType at(ptrdiff_t) const { return {}; }
};

}  // namespace SIMT_CUB

#if SIMT_HIP
#define HIPCUB_WARP_THREADS ((unsigned)warpSize)
#define HIPCUB_DEVICE_WARP_THREADS SIMT_WARP_CONSTANT
#define HIPCUB_HOST_WARP_THREADS ((unsigned)warpSize)
#endif
