// rocPRIM's algorithms on whole arrays, by hipCUB's. The first call, with a null storage, tells how
// many bytes the second one needs.
#pragma once
#include "../hipcub/hipcub.hpp"
#include "thrust/functional.h"

namespace rocprim {

using thrust::equal_to;
using thrust::greater;
using thrust::less;
using thrust::maximum;
using thrust::minimum;
using thrust::multiplies;
using thrust::plus;

template <class In, class Out, class Op = plus<simt::ValueOf<In>>>
inline hipError_t reduce(void* storage, size_t& bytes, In in, Out out, size_t n, Op op = Op(),
                         hipStream_t stream = nullptr, bool = false) {
    return hipcub::DeviceReduce::Reduce(storage, bytes, in, out, n, op, simt::ValueOf<In>(), stream);
}
template <class In, class Out, class T, class N, class Op = plus<simt::ValueOf<In>>,
          class = std::enable_if_t<std::is_integral<N>::value>>
inline hipError_t reduce(void* storage, size_t& bytes, In in, Out out, T initial, N n,
                         Op op = Op(), hipStream_t stream = nullptr, bool = false) {
    return hipcub::DeviceReduce::Reduce(storage, bytes, in, out, n, op, initial, stream);
}
template <class In, class Out, class Op = plus<simt::ValueOf<In>>>
inline hipError_t inclusive_scan(void* storage, size_t& bytes, In in, Out out, size_t n,
                                 Op op = Op(), hipStream_t stream = nullptr, bool = false) {
    return hipcub::DeviceScan::InclusiveScan(storage, bytes, in, out, op, n, stream);
}
template <class In, class Out, class T, class Op = plus<simt::ValueOf<In>>>
inline hipError_t exclusive_scan(void* storage, size_t& bytes, In in, Out out, T initial, size_t n,
                                 Op op = Op(), hipStream_t stream = nullptr, bool = false) {
    return hipcub::DeviceScan::ExclusiveScan(storage, bytes, in, out, op, initial, n, stream);
}
#define SIMT_ROCPRIM_SORT(keys, pairs, Keys, Pairs)                                                \
    template <class K>                                                                             \
    inline hipError_t keys(void* storage, size_t& bytes, const K* in, K* out, size_t n,            \
                           unsigned begin = 0, unsigned end = 8 * sizeof(K),                       \
                           hipStream_t stream = nullptr, bool = false) {                           \
        return hipcub::DeviceRadixSort::Keys(storage, bytes, in, out, n, (int)begin, (int)end,     \
                                             stream);                                              \
    }                                                                                              \
    template <class K, class V>                                                                    \
    inline hipError_t pairs(void* storage, size_t& bytes, const K* in, K* out, const V* values,    \
                            V* values_out, size_t n, unsigned begin = 0,                           \
                            unsigned end = 8 * sizeof(K), hipStream_t stream = nullptr,            \
                            bool = false) {                                                        \
        return hipcub::DeviceRadixSort::Pairs(storage, bytes, in, out, values, values_out, n,      \
                                              (int)begin, (int)end, stream);                       \
    }
SIMT_ROCPRIM_SORT(radix_sort_keys, radix_sort_pairs, SortKeys, SortPairs)
SIMT_ROCPRIM_SORT(radix_sort_keys_desc, radix_sort_pairs_desc, SortKeysDescending,
                  SortPairsDescending)
#undef SIMT_ROCPRIM_SORT

}  // namespace rocprim
