// AT_DISPATCH_…(type, "name", [&] { uses scalar_t; }): the lambda is compiled for each type of the
// set and called for the one given.
#pragma once
#include "../c10/core/ScalarType.h"

namespace detail {
inline c10::ScalarType simt_scalar_type(c10::ScalarType type) { return type; }
inline c10::ScalarType simt_scalar_type(caffe2::TypeMeta type) { return type.toScalarType(); }
}  // namespace detail

#define AT_PRIVATE_CASE_TYPE_USING_HINT(type, hint, ...)                                          \
    case type: {                                                                                  \
        using hint [[maybe_unused]] = ::c10::impl::ScalarTypeToCPPTypeT<type>;                    \
        return __VA_ARGS__();                                                                     \
    }
#define AT_DISPATCH_CASE(type, ...) AT_PRIVATE_CASE_TYPE_USING_HINT(type, scalar_t, __VA_ARGS__)
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                       \
    [&] {                                                                                         \
        const ::c10::ScalarType simt_type = ::detail::simt_scalar_type(TYPE);                     \
        switch (simt_type) {                                                                      \
            __VA_ARGS__                                                                           \
            default:                                                                              \
                ::c10::detail::fail<::c10::NotImplementedError>("", '"', NAME,                    \
                                                                "\" not implemented for '",      \
                                                                simt_type, "'");                  \
        }                                                                                         \
    }()

#define AT_DISPATCH_CASE_FLOATING_TYPES(...)                                                      \
    AT_DISPATCH_CASE(::c10::ScalarType::Double, __VA_ARGS__)                                      \
    AT_DISPATCH_CASE(::c10::ScalarType::Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_TYPES_AND_HALF(...)                                             \
    AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)                                                  \
    AT_DISPATCH_CASE(::c10::ScalarType::Half, __VA_ARGS__)
#define AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES(...)                                              \
    AT_DISPATCH_CASE(::c10::ScalarType::Half, __VA_ARGS__)                                        \
    AT_DISPATCH_CASE(::c10::ScalarType::BFloat16, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)                                                      \
    AT_DISPATCH_CASE(::c10::ScalarType::Byte, __VA_ARGS__)                                        \
    AT_DISPATCH_CASE(::c10::ScalarType::Char, __VA_ARGS__)                                        \
    AT_DISPATCH_CASE(::c10::ScalarType::Int, __VA_ARGS__)                                         \
    AT_DISPATCH_CASE(::c10::ScalarType::Long, __VA_ARGS__)                                        \
    AT_DISPATCH_CASE(::c10::ScalarType::Short, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...)                                                           \
    AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__)                                                  \
    AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)

#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...)                                               \
    AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...)                                      \
    AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES_AND_HALF(__VA_ARGS__))
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(TYPE, NAME, ...)                                       \
    AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(A, TYPE, NAME, ...)                                        \
    AT_DISPATCH_SWITCH(TYPE, NAME,                                                                \
                       AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)                               \
                           AT_DISPATCH_CASE(A, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(A, B, TYPE, NAME, ...)                                    \
    AT_DISPATCH_SWITCH(TYPE, NAME,                                                                \
                       AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)                               \
                           AT_DISPATCH_CASE(A, __VA_ARGS__) AT_DISPATCH_CASE(B, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...)                                               \
    AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...)                                                    \
    AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(A, TYPE, NAME, ...)                                             \
    AT_DISPATCH_SWITCH(TYPE, NAME,                                                                \
                       AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(A, B, TYPE, NAME, ...)                                         \
    AT_DISPATCH_SWITCH(TYPE, NAME,                                                                \
                       AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__)   \
                           AT_DISPATCH_CASE(B, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND3(A, B, C, TYPE, NAME, ...)                                      \
    AT_DISPATCH_SWITCH(TYPE, NAME,                                                                \
                       AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__)   \
                           AT_DISPATCH_CASE(B, __VA_ARGS__) AT_DISPATCH_CASE(C, __VA_ARGS__))
#define AT_DISPATCH_INDEX_TYPES(TYPE, NAME, ...)                                                  \
    AT_DISPATCH_SWITCH(TYPE, NAME,                                                                \
                       AT_PRIVATE_CASE_TYPE_USING_HINT(::c10::ScalarType::Int, index_t,           \
                                                       __VA_ARGS__)                               \
                           AT_PRIVATE_CASE_TYPE_USING_HINT(::c10::ScalarType::Long, index_t,      \
                                                           __VA_ARGS__))
