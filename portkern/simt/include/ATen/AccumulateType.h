// at::acc_type: what sums of a type are kept in on the device.
#pragma once
#include "../c10/core/ScalarType.h"

namespace at {
template <class T, bool on_device>
struct AccumulateType {
    using type = std::conditional_t<std::is_integral<T>::value, int64_t, T>;
};
template <> struct AccumulateType<c10::Half, true> { using type = float; };
template <> struct AccumulateType<c10::BFloat16, true> { using type = float; };
template <> struct AccumulateType<c10::Half, false> { using type = float; };
template <> struct AccumulateType<c10::BFloat16, false> { using type = float; };
template <> struct AccumulateType<float, false> { using type = double; };
template <class T, bool on_device>
using acc_type = typename AccumulateType<T, on_device>::type;
template <class T>
using opmath_type = typename AccumulateType<T, true>::type;
}  // namespace at
