// thrust's function objects and placeholders.
#pragma once
#include <functional>

#if !SIMT_HIP
#include "../../cuda/std/functional"  // thrust includes it
#endif
#include "core.h"

namespace thrust {

template <class A, class R>
struct unary_function {
    using argument_type = A;
    using result_type = R;
};
template <class A, class B, class R>
struct binary_function {
    using first_argument_type = A;
    using second_argument_type = B;
    using result_type = R;
};

#define SIMT_THRUST_BINARY(name, Result, expression)                                               \
    template <class T = void>                                                                      \
    struct name : binary_function<T, T, Result> {                                                  \
        constexpr Result operator()(const T& a, const T& b) const { return (Result)(expression); } \
    };                                                                                             \
    template <>                                                                                    \
    struct name<void> {                                                                            \
        template <class A, class B>                                                                \
        constexpr auto operator()(const A& a, const B& b) const {                                  \
            return expression;                                                                     \
        }                                                                                          \
    };
SIMT_THRUST_BINARY(plus, T, a + b)
SIMT_THRUST_BINARY(minus, T, a - b)
SIMT_THRUST_BINARY(multiplies, T, a * b)
SIMT_THRUST_BINARY(divides, T, a / b)
SIMT_THRUST_BINARY(modulus, T, a % b)
SIMT_THRUST_BINARY(bit_and, T, a & b)
SIMT_THRUST_BINARY(bit_or, T, a | b)
SIMT_THRUST_BINARY(bit_xor, T, a ^ b)
SIMT_THRUST_BINARY(maximum, T, a < b ? b : a)
SIMT_THRUST_BINARY(minimum, T, b < a ? b : a)
SIMT_THRUST_BINARY(equal_to, bool, a == b)
SIMT_THRUST_BINARY(not_equal_to, bool, a != b)
SIMT_THRUST_BINARY(less, bool, a < b)
SIMT_THRUST_BINARY(less_equal, bool, a <= b)
SIMT_THRUST_BINARY(greater, bool, a > b)
SIMT_THRUST_BINARY(greater_equal, bool, a >= b)
SIMT_THRUST_BINARY(logical_and, bool, a && b)
SIMT_THRUST_BINARY(logical_or, bool, a || b)
#undef SIMT_THRUST_BINARY

#define SIMT_THRUST_UNARY(name, Result, expression)                                                \
    template <class T = void>                                                                      \
    struct name : unary_function<T, Result> {                                                      \
        constexpr Result operator()(const T& a) const { return (Result)(expression); }             \
    };                                                                                             \
    template <>                                                                                    \
    struct name<void> {                                                                            \
        template <class A>                                                                         \
        constexpr auto operator()(const A& a) const {                                              \
            return expression;                                                                     \
        }                                                                                          \
    };
SIMT_THRUST_UNARY(negate, T, -a)
SIMT_THRUST_UNARY(square, T, a * a)
SIMT_THRUST_UNARY(logical_not, bool, !a)
SIMT_THRUST_UNARY(identity, T, a)
#undef SIMT_THRUST_UNARY

template <class Predicate>
inline auto not1(Predicate f) {
    return [f](const auto& a) mutable { return !f(a); };
}
template <class Predicate>
inline auto not2(Predicate f) {
    return [f](const auto& a, const auto& b) mutable { return !f(a, b); };
}

// A tuple's members as a function's arguments.
template <class F>
struct zip_function {
    F f;
    template <class Tuple>
    decltype(auto) operator()(Tuple&& t) const { return std::apply(f, std::forward<Tuple>(t)); }
};
template <class F>
inline zip_function<F> make_zip_function(F f) { return {f}; }

// `_1 * 2 + _2`: an expression of arguments.
namespace placeholders {
struct expression_base {};
template <class F>
struct expression : expression_base {
    F f;
    explicit expression(F f) : f(f) {}
    template <class... A>
    constexpr auto operator()(A&&... a) const { return f(a...); }
};
template <class E>
using is_expression = std::is_base_of<expression_base, std::decay_t<E>>;
template <class E, class... A>
constexpr auto value(const E& e, const A&... a) {
    if constexpr (is_expression<E>::value) return e(a...);
    else return e;
}
#define SIMT_THRUST_EXPRESSION(op)                                                                 \
    template <class L, class R,                                                                    \
              class = std::enable_if_t<is_expression<L>::value || is_expression<R>::value>>        \
    constexpr auto operator op(const L& l, const R& r) {                                           \
        const auto f = [l, r](const auto&... a) { return value(l, a...) op value(r, a...); };      \
        return expression<decltype(f)>(f);                                                         \
    }
SIMT_THRUST_EXPRESSION(+) SIMT_THRUST_EXPRESSION(-) SIMT_THRUST_EXPRESSION(*)
SIMT_THRUST_EXPRESSION(/) SIMT_THRUST_EXPRESSION(%) SIMT_THRUST_EXPRESSION(==)
SIMT_THRUST_EXPRESSION(!=) SIMT_THRUST_EXPRESSION(<) SIMT_THRUST_EXPRESSION(<=)
SIMT_THRUST_EXPRESSION(>) SIMT_THRUST_EXPRESSION(>=) SIMT_THRUST_EXPRESSION(&&)
SIMT_THRUST_EXPRESSION(||) SIMT_THRUST_EXPRESSION(&) SIMT_THRUST_EXPRESSION(|)
SIMT_THRUST_EXPRESSION(^)
#undef SIMT_THRUST_EXPRESSION
template <size_t N>
struct argument : expression_base {
    template <class... A>
    constexpr auto operator()(const A&... a) const { return std::get<N>(std::tuple<A...>(a...)); }
};
static const argument<0> _1{};
static const argument<1> _2{};
static const argument<2> _3{};
}  // namespace placeholders

}  // namespace thrust
