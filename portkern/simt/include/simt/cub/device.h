// cub's algorithms on whole arrays, called from the host. Each is a launch of one thread that goes
// through the array, so its accesses are checked like a kernel's.
//
// The first call, with a null temp_storage, tells how many bytes the second one needs.
#pragma once
#include <limits>

#include "sort.h"
#if SIMT_HIP
#include "../../hip/hip_runtime_api.h"
#else
#include "../../cuda_runtime_api.h"
#endif

namespace simt {
namespace arrays {

#if SIMT_HIP
using Error = hipError_t;
using Stream = hipStream_t;
static constexpr Error invalid = hipErrorInvalidValue;
static inline Error last_error() { return hipPeekAtLastError(); }
#else
using Error = cudaError_t;
using Stream = cudaStream_t;
static constexpr Error invalid = cudaErrorInvalidValue;
static inline Error last_error() { return cudaPeekAtLastError(); }
#endif

// Runs work() on the device if there is temporary storage, else says how much there must be.
template <class F>
static inline Error run(void* temp, size_t& bytes, size_t needed, const char* name, Stream stream,
                        Site at, F work) {
    if (needed == 0) needed = 1;
    if (!temp) {
        bytes = needed;
        return (Error)0;
    }
    if (bytes < needed) return invalid;
    launch(Shape(dim3(1), dim3(1), 0, stream), name, work, at);
    return last_error();
}

// The type in which `op` adds up the values of `In`, begun with an `Init`.
template <class In, class Init, class Op>
using Accumulator =
    std::decay_t<decltype(std::declval<Op&>()(std::declval<Init>(),
                                              std::declval<ValueOf<In>>()))>;

// An output iterator's type, or the input's where outputs have none.
template <class Out, class In>
using OutputOf = std::conditional_t<std::is_void<ValueOf<Out>>::value, ValueOf<In>, ValueOf<Out>>;

// By halves, so that the rounding errors of a long sum stay as small as a parallel one's.
template <class A, class In, class Op>
static inline A fold(In in, int64_t begin, int64_t end, Op& op) {
    if (end - begin > 64) {
        const int64_t middle = begin + (end - begin) / 2;
        const A left = fold<A>(in, begin, middle, op);
        return (A)op(left, fold<A>(in, middle, end, op));
    }
    A total = (A)in[begin];
    for (int64_t i = begin + 1; i < end; ++i) total = (A)op(total, in[i]);
    return total;
}

template <class A, class In, class Op>
static inline A fold_after(const A& initial, In in, int64_t begin, int64_t end, Op& op) {
    return end > begin ? (A)op(initial, fold<A>(in, begin, end, op)) : initial;
}

// Offsets of a temporary storage's parts.
static inline size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Sorts by `bits` from `begin` in passes of 8, between the two buffers; the first pass reads
// `keys_in`. Returns which buffer has the result.
template <class K, class V>
struct Sorting {
    const K* keys_in;
    const V* values_in;
    K* keys[2];
    V* values[2];
    static constexpr bool pairs = !std::is_same<V, SIMT_CUB::NullType>::value;

    void pass(const K* from, const V* from_values, int to, int64_t n, int begin, int bits,
              bool descending) const {
        int64_t place[257] = {};
        for (int64_t i = 0; i < n; ++i)
            ++place[RadixKey<K>::digit(from[i], begin, bits, descending) + 1];
        for (int d = 0; d < 256; ++d) place[d + 1] += place[d];
        for (int64_t i = 0; i < n; ++i) {
            const int64_t p = place[RadixKey<K>::digit(from[i], begin, bits, descending)]++;
            keys[to][p] = from[i];
            if constexpr (pairs) values[to][p] = from_values[i];
        }
    }

    // `last`: which buffer is to have the result.
    void sort(int64_t n, int begin, int end, bool descending, int last) const {
        const K* from = keys_in;
        const V* from_values = values_in;
        int passes = (end - begin + 7) / 8;
        if (passes <= 0) return copy(n, last);
        for (; begin < end; begin += 8) {
            const int to = --passes % 2 == 0 ? last : 1 - last;
            pass(from, from_values, to, n, begin, end - begin < 8 ? end - begin : 8, descending);
            from = keys[to];
            from_values = values[to];
        }
    }
    void copy(int64_t n, int to) const {
        for (int64_t i = 0; i < n && keys[to] != keys_in; ++i) {
            keys[to][i] = keys_in[i];
            if constexpr (pairs) values[to][i] = values_in[i];
        }
    }

    template <class T>
    static T* part(void* temp, size_t offset) {
        return reinterpret_cast<T*>((char*)temp + offset);
    }
    static size_t bytes(int64_t n) {
        return rounded((size_t)n * sizeof(K)) + (pairs ? (size_t)n * sizeof(V) : 0);
    }
    // From separate arrays into separate arrays, through temporary storage.
    static Sorting between(void* temp, const K* in, K* out, const V* values, V* values_out,
                           int64_t n) {
        return {in, values, {out, (K*)temp},
                {values_out, part<V>(temp, rounded((size_t)n * sizeof(K)))}};
    }
    static Sorting between(SIMT_CUB::DoubleBuffer<K>& keys, V* values, V* alternate) {
        return {keys.Current(), values, {keys.Current(), keys.Alternate()}, {values, alternate}};
    }
};

}  // namespace arrays
}  // namespace simt

namespace SIMT_CUB {

using SimtError = simt::arrays::Error;
using SimtStream = simt::arrays::Stream;

// ---- reductions -------------------------------------------------------------------------

struct DeviceReduce {
    template <class In, class Out, class Op, class T, class N>
    static SimtError Reduce(void* temp, size_t& bytes, In in, Out out, N n, Op op, T initial,
                            SimtStream stream = 0, SIMT_AT) {
        using A = simt::arrays::Accumulator<In, T, Op>;
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceReduce", stream, at, [=]() mutable {
            *out = simt::arrays::fold_after<A>((A)initial, in, 0, (int64_t)n, op);
        });
    }
    template <class In, class Out, class N>
    static SimtError Sum(void* temp, size_t& bytes, In in, Out out, N n, SimtStream stream = 0,
                         SIMT_AT) {
        using T = simt::arrays::OutputOf<Out, In>;
        return Reduce(temp, bytes, in, out, n, SIMT_CUB::Sum(), T{}, stream, at);
    }
    template <class In, class Out, class N>
    static SimtError Min(void* temp, size_t& bytes, In in, Out out, N n, SimtStream stream = 0,
                         SIMT_AT) {
        using Limits = std::numeric_limits<simt::ValueOf<In>>;
        return Reduce(temp, bytes, in, out, n, SIMT_CUB::Min(), Limits::max(), stream, at);
    }
    template <class In, class Out, class N>
    static SimtError Max(void* temp, size_t& bytes, In in, Out out, N n, SimtStream stream = 0,
                         SIMT_AT) {
        using Limits = std::numeric_limits<simt::ValueOf<In>>;
        return Reduce(temp, bytes, in, out, n, SIMT_CUB::Max(), Limits::lowest(), stream, at);
    }
    // *out is a KeyValuePair<int, T>: the index and the value.
    template <class In, class Out, class N>
    static SimtError ArgMin(void* temp, size_t& bytes, In in, Out out, N n, SimtStream stream = 0,
                            SIMT_AT) {
        using T = simt::ValueOf<In>;
        const KeyValuePair<int, T> none(1, std::numeric_limits<T>::max());
        return arg(temp, bytes, in, out, n, SIMT_CUB::ArgMin(), none, stream, at);
    }
    template <class In, class Out, class N>
    static SimtError ArgMax(void* temp, size_t& bytes, In in, Out out, N n, SimtStream stream = 0,
                            SIMT_AT) {
        using T = simt::ValueOf<In>;
        const KeyValuePair<int, T> none(1, std::numeric_limits<T>::lowest());
        return arg(temp, bytes, in, out, n, SIMT_CUB::ArgMax(), none, stream, at);
    }
    template <class In, class Out, class Op, class Transform, class T, class N>
    static SimtError TransformReduce(void* temp, size_t& bytes, In in, Out out, N n, Op op,
                                     Transform transform, T initial, SimtStream stream = 0,
                                     SIMT_AT) {
        using R = std::decay_t<decltype(transform(*in))>;
        const TransformInputIterator<R, Transform, In> transformed(in, transform);
        return Reduce(temp, bytes, transformed, out, n, op, initial, stream, at);
    }
    // Reduces runs of equal neighbouring keys.
    template <class Keys, class Unique, class Values, class Totals, class Count, class Op, class N>
    static SimtError ReduceByKey(void* temp, size_t& bytes, Keys keys, Unique unique, Values values,
                                 Totals totals, Count count, Op op, N n, SimtStream stream = 0,
                                 SIMT_AT) {
        using A = simt::arrays::Accumulator<Values, simt::ValueOf<Values>, Op>;
        const auto work = [=]() mutable {
            int64_t runs = 0;
            for (int64_t i = 0, end; i < (int64_t)n; i = end, ++runs) {
                for (end = i + 1; end < (int64_t)n && keys[end] == keys[i];) ++end;
                unique[runs] = keys[i];
                totals[runs] = simt::arrays::fold<A>(values, i, end, op);
            }
            *count = (std::decay_t<decltype(*count)>)runs;
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceReduce", stream, at, work);
    }

  private:
    template <class In, class Out, class N, class Op, class Pair>
    static SimtError arg(void* temp, size_t& bytes, In in, Out out, N n, Op op, Pair none,
                         SimtStream stream, simt::Site at) {
        const auto work = [=]() mutable {
            Pair best = none;
            for (int64_t i = 0; i < (int64_t)n; ++i) {
                const Pair next((int)i, in[i]);
                best = i == 0 ? next : op(best, next);
            }
            *out = best;
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceReduce", stream, at, work);
    }
};

// Segment s is [begins[s], ends[s]).
struct DeviceSegmentedReduce {
    template <class In, class Out, class Begins, class Ends, class Op, class T>
    static SimtError Reduce(void* temp, size_t& bytes, In in, Out out, int64_t segments,
                            Begins begins, Ends ends, Op op, T initial, SimtStream stream = 0,
                            SIMT_AT) {
        using A = simt::arrays::Accumulator<In, T, Op>;
        const auto work = [=]() mutable {
            for (int64_t s = 0; s < segments; ++s)
                out[s] = simt::arrays::fold_after<A>((A)initial, in, (int64_t)begins[s],
                                                     (int64_t)ends[s], op);
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceSegmentedReduce", stream, at, work);
    }
    template <class In, class Out, class Begins, class Ends>
    static SimtError Sum(void* temp, size_t& bytes, In in, Out out, int64_t segments, Begins begins,
                         Ends ends, SimtStream stream = 0, SIMT_AT) {
        using T = simt::arrays::OutputOf<Out, In>;
        return Reduce(temp, bytes, in, out, segments, begins, ends, SIMT_CUB::Sum(), T{}, stream,
                      at);
    }
    template <class In, class Out, class Begins, class Ends>
    static SimtError Min(void* temp, size_t& bytes, In in, Out out, int64_t segments, Begins begins,
                         Ends ends, SimtStream stream = 0, SIMT_AT) {
        const auto initial = std::numeric_limits<simt::ValueOf<In>>::max();
        return Reduce(temp, bytes, in, out, segments, begins, ends, SIMT_CUB::Min(), initial,
                      stream, at);
    }
    template <class In, class Out, class Begins, class Ends>
    static SimtError Max(void* temp, size_t& bytes, In in, Out out, int64_t segments, Begins begins,
                         Ends ends, SimtStream stream = 0, SIMT_AT) {
        const auto initial = std::numeric_limits<simt::ValueOf<In>>::lowest();
        return Reduce(temp, bytes, in, out, segments, begins, ends, SIMT_CUB::Max(), initial,
                      stream, at);
    }
};

// ---- scans ------------------------------------------------------------------------------

struct DeviceScan {
    template <class In, class Out, class N>
    static SimtError ExclusiveSum(void* temp, size_t& bytes, In in, Out out, N n,
                                  SimtStream stream = 0, SIMT_AT) {
        return ExclusiveScan(temp, bytes, in, out, SIMT_CUB::Sum(), simt::ValueOf<In>{}, n, stream,
                             at);
    }
    template <class In, class Out, class Op, class T, class N>
    static SimtError ExclusiveScan(void* temp, size_t& bytes, In in, Out out, Op op, T initial, N n,
                                   SimtStream stream = 0, SIMT_AT) {
        using A = simt::arrays::Accumulator<In, T, Op>;
        const auto work = [=]() mutable {
            A total = (A)initial;
            for (int64_t i = 0; i < (int64_t)n; ++i) {
                const auto item = in[i];  // the output may be the input
                out[i] = total;
                total = (A)op(total, item);
            }
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceScan", stream, at, work);
    }
    template <class In, class Out, class N>
    static SimtError InclusiveSum(void* temp, size_t& bytes, In in, Out out, N n,
                                  SimtStream stream = 0, SIMT_AT) {
        return InclusiveScan(temp, bytes, in, out, SIMT_CUB::Sum(), n, stream, at);
    }
    template <class In, class Out, class Op, class N>
    static SimtError InclusiveScan(void* temp, size_t& bytes, In in, Out out, Op op, N n,
                                   SimtStream stream = 0, SIMT_AT) {
        using A = simt::arrays::Accumulator<In, simt::ValueOf<In>, Op>;
        const auto work = [=]() mutable {
            if (n <= 0) return;
            A total = (A)in[0];
            out[0] = total;
            for (int64_t i = 1; i < (int64_t)n; ++i) out[i] = total = (A)op(total, in[i]);
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceScan", stream, at, work);
    }
    template <class In, class Out, class Op, class T, class N>
    static SimtError InclusiveScanInit(void* temp, size_t& bytes, In in, Out out, Op op, T initial,
                                       N n, SimtStream stream = 0, SIMT_AT) {
        using A = simt::arrays::Accumulator<In, T, Op>;
        const auto work = [=]() mutable {
            A total = (A)initial;
            for (int64_t i = 0; i < (int64_t)n; ++i) out[i] = total = (A)op(total, in[i]);
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceScan", stream, at, work);
    }
    // Begun anew at every key that differs from the one before.
    template <class Keys, class In, class Out, class N, class Equal = Equality>
    static SimtError InclusiveSumByKey(void* temp, size_t& bytes, Keys keys, In in, Out out, N n,
                                       Equal equal = Equal(), SimtStream stream = 0, SIMT_AT) {
        return InclusiveScanByKey(temp, bytes, keys, in, out, SIMT_CUB::Sum(), n, equal, stream,
                                  at);
    }
    template <class Keys, class In, class Out, class Op, class N, class Equal = Equality>
    static SimtError InclusiveScanByKey(void* temp, size_t& bytes, Keys keys, In in, Out out, Op op,
                                        N n, Equal equal = Equal(), SimtStream stream = 0,
                                        SIMT_AT) {
        using A = simt::arrays::Accumulator<In, simt::ValueOf<In>, Op>;
        const auto work = [=]() mutable {
            A total{};
            for (int64_t i = 0; i < (int64_t)n; ++i) {
                const bool more = i > 0 && equal(keys[i - 1], keys[i]);
                total = more ? (A)op(total, in[i]) : (A)in[i];
                out[i] = total;
            }
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceScan", stream, at, work);
    }
    template <class Keys, class In, class Out, class N, class Equal = Equality>
    static SimtError ExclusiveSumByKey(void* temp, size_t& bytes, Keys keys, In in, Out out, N n,
                                       Equal equal = Equal(), SimtStream stream = 0, SIMT_AT) {
        return ExclusiveScanByKey(temp, bytes, keys, in, out, SIMT_CUB::Sum(),
                                  simt::ValueOf<In>{}, n, equal, stream, at);
    }
    template <class Keys, class In, class Out, class Op, class T, class N, class Equal = Equality>
    static SimtError ExclusiveScanByKey(void* temp, size_t& bytes, Keys keys, In in, Out out, Op op,
                                        T initial, N n, Equal equal = Equal(),
                                        SimtStream stream = 0, SIMT_AT) {
        using A = simt::arrays::Accumulator<In, T, Op>;
        const auto work = [=]() mutable {
            A total = (A)initial;
            for (int64_t i = 0; i < (int64_t)n; ++i) {
                if (i > 0 && !equal(keys[i - 1], keys[i])) total = (A)initial;
                const auto item = in[i];
                out[i] = total;
                total = (A)op(total, item);
            }
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceScan", stream, at, work);
    }
};

// ---- sorts ------------------------------------------------------------------------------

struct DeviceRadixSort {
    template <class K, class N>
    static SimtError SortKeys(void* temp, size_t& bytes, const K* in, K* out, N n, int begin = 0,
                              int end = sizeof(K) * 8, SimtStream stream = 0, SIMT_AT) {
        return sort<K, NullType>(temp, bytes, in, out, nullptr, nullptr, n, begin, end, false,
                                 stream, at);
    }
    template <class K, class N>
    static SimtError SortKeysDescending(void* temp, size_t& bytes, const K* in, K* out, N n,
                                        int begin = 0, int end = sizeof(K) * 8,
                                        SimtStream stream = 0, SIMT_AT) {
        return sort<K, NullType>(temp, bytes, in, out, nullptr, nullptr, n, begin, end, true,
                                 stream, at);
    }
    template <class K, class V, class N>
    static SimtError SortPairs(void* temp, size_t& bytes, const K* in, K* out, const V* values,
                               V* values_out, N n, int begin = 0, int end = sizeof(K) * 8,
                               SimtStream stream = 0, SIMT_AT) {
        return sort<K, V>(temp, bytes, in, out, values, values_out, n, begin, end, false, stream,
                          at);
    }
    template <class K, class V, class N>
    static SimtError SortPairsDescending(void* temp, size_t& bytes, const K* in, K* out,
                                         const V* values, V* values_out, N n, int begin = 0,
                                         int end = sizeof(K) * 8, SimtStream stream = 0, SIMT_AT) {
        return sort<K, V>(temp, bytes, in, out, values, values_out, n, begin, end, true, stream,
                          at);
    }

    // Between the buffers' two arrays; afterwards Current() is the sorted one.
    template <class K, class N>
    static SimtError SortKeys(void* temp, size_t& bytes, DoubleBuffer<K>& keys, N n, int begin = 0,
                              int end = sizeof(K) * 8, SimtStream stream = 0, SIMT_AT) {
        return sort(temp, bytes, keys, n, begin, end, false, stream, at);
    }
    template <class K, class N>
    static SimtError SortKeysDescending(void* temp, size_t& bytes, DoubleBuffer<K>& keys, N n,
                                        int begin = 0, int end = sizeof(K) * 8,
                                        SimtStream stream = 0, SIMT_AT) {
        return sort(temp, bytes, keys, n, begin, end, true, stream, at);
    }
    template <class K, class V, class N>
    static SimtError SortPairs(void* temp, size_t& bytes, DoubleBuffer<K>& keys,
                               DoubleBuffer<V>& values, N n, int begin = 0,
                               int end = sizeof(K) * 8, SimtStream stream = 0, SIMT_AT) {
        return sort(temp, bytes, keys, values, n, begin, end, false, stream, at);
    }
    template <class K, class V, class N>
    static SimtError SortPairsDescending(void* temp, size_t& bytes, DoubleBuffer<K>& keys,
                                         DoubleBuffer<V>& values, N n, int begin = 0,
                                         int end = sizeof(K) * 8, SimtStream stream = 0, SIMT_AT) {
        return sort(temp, bytes, keys, values, n, begin, end, true, stream, at);
    }

  private:
    template <class K, class V>
    static SimtError sort(void* temp, size_t& bytes, const K* in, K* out, const V* values,
                          V* values_out, int64_t n, int begin, int end, bool descending,
                          SimtStream stream, simt::Site at) {
        using Sorting = simt::arrays::Sorting<K, V>;
        const Sorting work = Sorting::between(temp, in, out, values, values_out, n);
        return simt::arrays::run(temp, bytes, Sorting::bytes(n), "cub::DeviceRadixSort", stream, at,
                                 [=] { work.sort(n, begin, end, descending, 0); });
    }
    template <class K>
    static SimtError sort(void* temp, size_t& bytes, DoubleBuffer<K>& keys, int64_t n, int begin,
                          int end, bool descending, SimtStream stream, simt::Site at) {
        const auto work =
            simt::arrays::Sorting<K, NullType>::between(keys, (NullType*)nullptr, nullptr);
        const int last = (end - begin + 7) / 8 % 2;
        if (temp) keys.selector ^= last;
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceRadixSort", stream, at,
                                 [=] { work.sort(n, begin, end, descending, last); });
    }
    template <class K, class V>
    static SimtError sort(void* temp, size_t& bytes, DoubleBuffer<K>& keys, DoubleBuffer<V>& values,
                          int64_t n, int begin, int end, bool descending, SimtStream stream,
                          simt::Site at) {
        const auto work = simt::arrays::Sorting<K, V>::between(keys, values.Current(),
                                                               values.Alternate());
        const int last = (end - begin + 7) / 8 % 2;
        if (temp) {
            keys.selector ^= last;
            values.selector ^= last;
        }
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceRadixSort", stream, at,
                                 [=] { work.sort(n, begin, end, descending, last); });
    }
};

struct DeviceSegmentedRadixSort {
    template <class K, class Begins, class Ends>
    static SimtError SortKeys(void* temp, size_t& bytes, const K* in, K* out, int64_t n,
                              int64_t segments, Begins begins, Ends ends, int begin = 0,
                              int end = sizeof(K) * 8, SimtStream stream = 0, SIMT_AT) {
        return sort<K, NullType>(temp, bytes, in, out, nullptr, nullptr, n, segments, begins, ends,
                                 begin, end, false, stream, at);
    }
    template <class K, class Begins, class Ends>
    static SimtError SortKeysDescending(void* temp, size_t& bytes, const K* in, K* out, int64_t n,
                                        int64_t segments, Begins begins, Ends ends, int begin = 0,
                                        int end = sizeof(K) * 8, SimtStream stream = 0, SIMT_AT) {
        return sort<K, NullType>(temp, bytes, in, out, nullptr, nullptr, n, segments, begins, ends,
                                 begin, end, true, stream, at);
    }
    template <class K, class V, class Begins, class Ends>
    static SimtError SortPairs(void* temp, size_t& bytes, const K* in, K* out, const V* values,
                               V* values_out, int64_t n, int64_t segments, Begins begins, Ends ends,
                               int begin = 0, int end = sizeof(K) * 8, SimtStream stream = 0,
                               SIMT_AT) {
        return sort<K, V>(temp, bytes, in, out, values, values_out, n, segments, begins, ends,
                          begin, end, false, stream, at);
    }
    template <class K, class V, class Begins, class Ends>
    static SimtError SortPairsDescending(void* temp, size_t& bytes, const K* in, K* out,
                                         const V* values, V* values_out, int64_t n,
                                         int64_t segments, Begins begins, Ends ends, int begin = 0,
                                         int end = sizeof(K) * 8, SimtStream stream = 0, SIMT_AT) {
        return sort<K, V>(temp, bytes, in, out, values, values_out, n, segments, begins, ends,
                          begin, end, true, stream, at);
    }

  private:
    friend struct DeviceSegmentedSort;
    template <class K, class V, class Begins, class Ends>
    static SimtError sort(void* temp, size_t& bytes, const K* in, K* out, const V* values,
                          V* values_out, int64_t n, int64_t segments, Begins begins, Ends ends,
                          int begin, int end, bool descending, SimtStream stream, simt::Site at) {
        using Sorting = simt::arrays::Sorting<K, V>;
        const Sorting all = Sorting::between(temp, in, out, values, values_out, n);
        const auto work = [=] {
            for (int64_t s = 0; s < segments; ++s) {
                const int64_t b = (int64_t)begins[s], length = (int64_t)ends[s] - b;
                const Sorting one = {all.keys_in + b,
                                     all.values_in + b,
                                     {all.keys[0] + b, all.keys[1] + b},
                                     {all.values[0] + b, all.values[1] + b}};
                if (length > 0) one.sort(length, begin, end, descending, 0);
            }
        };
        return simt::arrays::run(temp, bytes, Sorting::bytes(n), "cub::DeviceSegmentedSort", stream,
                                 at, work);
    }
};

// The same order by other means; stable, though only the Stable forms promise it.
struct DeviceSegmentedSort {
#define SIMT_SEGMENTED_SORT(PREFIX, SUFFIX, DESCENDING)                                           \
    template <class K, class Begins, class Ends>                                                  \
    static SimtError PREFIX##SortKeys##SUFFIX(void* temp, size_t& bytes, const K* in, K* out,     \
                                              int64_t n, int64_t segments, Begins begins,         \
                                              Ends ends, SimtStream stream = 0, SIMT_AT) {        \
        return DeviceSegmentedRadixSort::sort<K, NullType>(temp, bytes, in, out, nullptr, nullptr, \
                                                           n, segments, begins, ends, 0,          \
                                                           sizeof(K) * 8, DESCENDING, stream, at); \
    }                                                                                             \
    template <class K, class V, class Begins, class Ends>                                         \
    static SimtError PREFIX##SortPairs##SUFFIX(                                                   \
        void* temp, size_t& bytes, const K* in, K* out, const V* values, V* values_out, int64_t n, \
        int64_t segments, Begins begins, Ends ends, SimtStream stream = 0, SIMT_AT) {             \
        return DeviceSegmentedRadixSort::sort<K, V>(temp, bytes, in, out, values, values_out, n,  \
                                                    segments, begins, ends, 0, sizeof(K) * 8,     \
                                                    DESCENDING, stream, at);                      \
    }
    SIMT_SEGMENTED_SORT(, , false)
    SIMT_SEGMENTED_SORT(, Descending, true)
    SIMT_SEGMENTED_SORT(Stable, , false)
    SIMT_SEGMENTED_SORT(Stable, Descending, true)
#undef SIMT_SEGMENTED_SORT
};

// In place, by a comparison; stable.
struct DeviceMergeSort {
    template <class K, class N, class Less>
    static SimtError SortKeys(void* temp, size_t& bytes, K* keys, N n, Less less,
                              SimtStream stream = 0, SIMT_AT) {
        return sort(temp, bytes, keys, (NullType*)nullptr, n, less, stream, at);
    }
    template <class K, class V, class N, class Less>
    static SimtError SortPairs(void* temp, size_t& bytes, K* keys, V* values, N n, Less less,
                               SimtStream stream = 0, SIMT_AT) {
        return sort(temp, bytes, keys, values, n, less, stream, at);
    }
    template <class K, class N, class Less>
    static SimtError StableSortKeys(void* temp, size_t& bytes, K* keys, N n, Less less,
                                    SimtStream stream = 0, SIMT_AT) {
        return sort(temp, bytes, keys, (NullType*)nullptr, n, less, stream, at);
    }
    template <class K, class V, class N, class Less>
    static SimtError StableSortPairs(void* temp, size_t& bytes, K* keys, V* values, N n, Less less,
                                     SimtStream stream = 0, SIMT_AT) {
        return sort(temp, bytes, keys, values, n, less, stream, at);
    }

  private:
    template <class K, class V, class Less>
    static SimtError sort(void* temp, size_t& bytes, K* keys, V* values, int64_t n, Less less,
                          SimtStream stream, simt::Site at) {
        using Sorting = simt::arrays::Sorting<K, V>;
        const Sorting two = Sorting::between(temp, keys, keys, values, values, n);
        const auto work = [=]() mutable {
            int from = 0;
            for (int64_t width = 1; width < n; width *= 2, from = 1 - from)
                for (int64_t b = 0; b < n; b += 2 * width) merge(two, from, b, width, n, less);
            if (from == 0) return;
            for (int64_t i = 0; i < n; ++i) move(two, 1, i, i);
        };
        return simt::arrays::run(temp, bytes, Sorting::bytes(n), "cub::DeviceMergeSort", stream, at,
                                 work);
    }
    template <class Sorting>
    static void move(const Sorting& two, int from, int64_t i, int64_t to) {
        two.keys[1 - from][to] = two.keys[from][i];
        if constexpr (Sorting::pairs) two.values[1 - from][to] = two.values[from][i];
    }
    template <class Sorting, class Less>
    static void merge(const Sorting& two, int from, int64_t begin, int64_t width, int64_t n,
                      Less& less) {
        const int64_t middle = begin + width < n ? begin + width : n;
        const int64_t end = begin + 2 * width < n ? begin + 2 * width : n;
        int64_t left = begin, right = middle;
        for (int64_t to = begin; to < end; ++to) {
            const bool from_right =
                left == middle ||
                (right < end && less(two.keys[from][right], two.keys[from][left]));
            move(two, from, from_right ? right++ : left++, to);
        }
    }
};

// ---- selections -------------------------------------------------------------------------

struct DeviceSelect {
    template <class In, class Flags, class Out, class Count, class N>
    static SimtError Flagged(void* temp, size_t& bytes, In in, Flags flags, Out out, Count count,
                             N n, SimtStream stream = 0, SIMT_AT) {
        return select(temp, bytes, in, out, count, n, stream, at,
                      [=](int64_t i) { return (bool)flags[i]; });
    }
    template <class In, class Out, class Count, class N, class Predicate>
    static SimtError If(void* temp, size_t& bytes, In in, Out out, Count count, N n,
                        Predicate predicate, SimtStream stream = 0, SIMT_AT) {
        return select(temp, bytes, in, out, count, n, stream, at,
                      [=](int64_t i) mutable { return (bool)predicate(in[i]); });
    }
    // The first of every run of equal items.
    template <class In, class Out, class Count, class N>
    static SimtError Unique(void* temp, size_t& bytes, In in, Out out, Count count, N n,
                            SimtStream stream = 0, SIMT_AT) {
        return select(temp, bytes, in, out, count, n, stream, at,
                      [=](int64_t i) { return i == 0 || !(in[i] == in[i - 1]); });
    }
    template <class Keys, class Values, class Unique, class Out, class Count, class N>
    static SimtError UniqueByKey(void* temp, size_t& bytes, Keys keys, Values values, Unique unique,
                                 Out out, Count count, N n, SimtStream stream = 0, SIMT_AT) {
        const auto work = [=]() mutable {
            int64_t runs = 0;
            for (int64_t i = 0; i < (int64_t)n; ++i) {
                if (i > 0 && keys[i] == keys[i - 1]) continue;
                unique[runs] = keys[i];
                out[runs++] = values[i];
            }
            *count = (std::decay_t<decltype(*count)>)runs;
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceSelect", stream, at, work);
    }

  private:
    template <class In, class Out, class Count, class N, class Chosen>
    static SimtError select(void* temp, size_t& bytes, In in, Out out, Count count, N n,
                            SimtStream stream, simt::Site at, Chosen chosen) {
        const auto work = [=]() mutable {
            int64_t found = 0;
            for (int64_t i = 0; i < (int64_t)n; ++i)
                if (chosen(i)) out[found++] = in[i];
            *count = (std::decay_t<decltype(*count)>)found;
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceSelect", stream, at, work);
    }
};

// The chosen items in order, then the others from the end backwards.
struct DevicePartition {
    template <class In, class Flags, class Out, class Count, class N>
    static SimtError Flagged(void* temp, size_t& bytes, In in, Flags flags, Out out, Count count,
                             N n, SimtStream stream = 0, SIMT_AT) {
        return partition(temp, bytes, in, out, count, n, stream, at,
                         [=](int64_t i) { return (bool)flags[i]; });
    }
    template <class In, class Out, class Count, class N, class Predicate>
    static SimtError If(void* temp, size_t& bytes, In in, Out out, Count count, N n,
                        Predicate predicate, SimtStream stream = 0, SIMT_AT) {
        return partition(temp, bytes, in, out, count, n, stream, at,
                         [=](int64_t i) mutable { return (bool)predicate(in[i]); });
    }

  private:
    template <class In, class Out, class Count, class N, class Chosen>
    static SimtError partition(void* temp, size_t& bytes, In in, Out out, Count count, N n,
                               SimtStream stream, simt::Site at, Chosen chosen) {
        const auto work = [=]() mutable {
            int64_t front = 0, back = (int64_t)n;
            for (int64_t i = 0; i < (int64_t)n; ++i) {
                if (chosen(i)) out[front++] = in[i];
                else out[--back] = in[i];
            }
            *count = (std::decay_t<decltype(*count)>)front;
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DevicePartition", stream, at, work);
    }
};

struct DeviceRunLengthEncode {
    template <class In, class Unique, class Lengths, class Count, class N>
    static SimtError Encode(void* temp, size_t& bytes, In in, Unique unique, Lengths lengths,
                            Count count, N n, SimtStream stream = 0, SIMT_AT) {
        const ConstantInputIterator<int> one(1);
        return DeviceReduce::ReduceByKey(temp, bytes, in, unique, one, lengths, count,
                                         SIMT_CUB::Sum(), n, stream, at);
    }
};

// ---- histograms -------------------------------------------------------------------------

struct DeviceHistogram {
    // `levels` boundaries make levels - 1 bins of equal width over [lower, upper).
    template <class In, class Counter, class Level, class N>
    static SimtError HistogramEven(void* temp, size_t& bytes, In in, Counter* histogram, int levels,
                                   Level lower, Level upper, N n, SimtStream stream = 0, SIMT_AT) {
        const auto bin = [=](auto sample) -> int {
            using C = std::common_type_t<decltype(sample), Level>;
            const C s = (C)sample;
            if (!(s >= (C)lower && s < (C)upper)) return -1;
            if constexpr (std::is_integral<C>::value)
                return (int)((uint64_t)(s - (C)lower) * (uint64_t)(levels - 1) /
                             (uint64_t)((C)upper - (C)lower));
            else
                return (int)((s - (C)lower) * (C)(levels - 1) / ((C)upper - (C)lower));
        };
        return count(temp, bytes, in, histogram, levels, n, stream, at, bin);
    }
    // Bin b is [boundaries[b], boundaries[b + 1]).
    template <class In, class Counter, class Level, class N>
    static SimtError HistogramRange(void* temp, size_t& bytes, In in, Counter* histogram,
                                    int levels, const Level* boundaries, N n,
                                    SimtStream stream = 0, SIMT_AT) {
        const auto bin = [=](auto sample) {
            int low = 0, high = levels;  // boundaries before `low` are at most the sample
            while (low < high) {
                const int middle = (low + high) / 2;
                if (boundaries[middle] <= sample) low = middle + 1;
                else high = middle;
            }
            return low - 1;
        };
        return count(temp, bytes, in, histogram, levels, n, stream, at, bin);
    }

  private:
    template <class In, class Counter, class N, class Bin>
    static SimtError count(void* temp, size_t& bytes, In in, Counter* histogram, int levels, N n,
                           SimtStream stream, simt::Site at, Bin bin) {
        const auto work = [=] {
            for (int b = 0; b < levels - 1; ++b) histogram[b] = 0;
            for (int64_t i = 0; i < (int64_t)n; ++i) {
                const int b = bin(in[i]);
                if (b >= 0 && b < levels - 1) ++histogram[b];
            }
        };
        return simt::arrays::run(temp, bytes, 1, "cub::DeviceHistogram", stream, at, work);
    }
};

// ---- loops ------------------------------------------------------------------------------

struct DeviceFor {
    template <class N, class F>
    static SimtError Bulk(N n, F f, SimtStream stream = 0, SIMT_AT) {
        return each(stream, at, [=]() mutable {
            for (N i = 0; i < n; ++i) f(i);
        });
    }
    template <class It, class N, class F>
    static SimtError ForEachN(It first, N n, F f, SimtStream stream = 0, SIMT_AT) {
        return each(stream, at, [=]() mutable {
            for (N i = 0; i < n; ++i) f(first[i]);
        });
    }
    template <class It, class F>
    static SimtError ForEach(It first, It last, F f, SimtStream stream = 0, SIMT_AT) {
        return ForEachN(first, last - first, f, stream, at);
    }

  private:
    template <class F>
    static SimtError each(SimtStream stream, simt::Site at, F work) {
        size_t bytes = 1;
        return simt::arrays::run(&bytes, bytes, 1, "cub::DeviceFor", stream, at, work);
    }
};

}  // namespace SIMT_CUB
