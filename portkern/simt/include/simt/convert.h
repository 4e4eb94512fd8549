// C++ values as those that cross the C interface, and operations that PyTorch itself does: what the
// runtime has no operation of its own for goes to the torch of the process that runs the extension.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../ATen/core/Tensor.h"

namespace simt::lite {

// ---- values of each type: how they are named, made from a Value, and turned into one

template <>
struct Convert<at::Tensor> {
    static const char* name() { return "Tensor"; }
    static at::Tensor from(const Value& v) {
        if (v.kind == Value::none) return {};
        retain(v.tensor_of);
        return at::Tensor::owning(v.tensor_of);
    }
    static void to(Value& v, const at::Tensor& t) {
        v.kind = t.defined() ? Value::tensor : Value::none;
        v.tensor_of = t.unsafeGetTensorImpl();
        retain(v.tensor_of);
    }
};
template <>
struct Convert<bool> {
    static const char* name() { return "bool"; }
    static bool from(const Value& v) { return v.whole; }
    static void to(Value& v, bool b) {
        v.kind = Value::boolean;
        v.whole = b;
    }
};
template <class T>
struct Convert<T, std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, bool>::value>> {
    static const char* name() { return "int"; }
    static T from(const Value& v) {
        if ((int64_t)(T)v.whole != v.whole)
            c10::detail::fail<c10::TypeError>("", "an int is too large for its parameter");
        return (T)v.whole;
    }
    static void to(Value& v, T i) {
        v.kind = Value::integer;
        v.whole = (int64_t)i;
    }
};
template <class T>
struct Convert<T, std::enable_if_t<std::is_floating_point<T>::value>> {
    static const char* name() { return "float"; }
    static T from(const Value& v) { return v.kind == Value::real ? (T)v.number : (T)v.whole; }
    static void to(Value& v, T x) {
        v.kind = Value::real;
        v.number = (double)x;
    }
};
template <class T>
struct Convert<T, std::enable_if_t<std::is_same<T, c10::Half>::value ||
                                   std::is_same<T, c10::BFloat16>::value>> {
    static void to(Value& v, T x) { Convert<double>::to(v, (double)(float)x); }
};
template <>
struct Convert<std::string> {
    static const char* name() { return "str"; }
    static std::string from(const Value& v) { return v.characters; }
    static void to(Value& v, const std::string& s) {
        v.kind = Value::text;
        v.characters = make_text(s.c_str());
    }
};
template <>
struct Convert<const char*> {
    static void to(Value& v, const char* s) { Convert<std::string>::to(v, s); }
};
template <>
struct Convert<c10::Scalar> {
    static const char* name() { return "Scalar"; }
    static c10::Scalar from(const Value& v) {
        if (v.kind == Value::real) return v.number;
        if (v.kind == Value::boolean) return (bool)v.whole;
        return v.whole;
    }
    static void to(Value& v, const c10::Scalar& s) {
        if (s.isFloatingPoint()) Convert<double>::to(v, s.toDouble());
        else Convert<int64_t>::to(v, s.toLong());
    }
};
template <>
struct Convert<c10::ScalarType> {
    static const char* name() { return "dtype"; }
    static c10::ScalarType from(const Value& v) { return (c10::ScalarType)v.whole; }
    static void to(Value& v, c10::ScalarType t) { Convert<int>::to(v, (int)t); }
};
template <>
struct Convert<std::nullopt_t> {
    static void to(Value& v, std::nullopt_t) { v.kind = Value::none; }
};

template <class T>
struct Convert<std::optional<T>> {
    static const char* name() { return join("Optional[", Convert<T>::name(), "]"); }
    static std::optional<T> from(const Value& v) {
        if (v.kind == Value::none) return std::nullopt;
        return Convert<T>::from(v);
    }
    static void to(Value& v, const std::optional<T>& t) {
        v.kind = Value::none;
        if (t) Convert<T>::to(v, *t);
    }
};
template <class T>
struct Convert<std::vector<T>> {
    static const char* name() { return join("List[", Convert<T>::name(), "]"); }
    static std::vector<T> from(const Value& v) {
        std::vector<T> all;
        for (int64_t i = 0; i < v.count; ++i) all.push_back(Convert<T>::from(v.items[i]));
        return all;
    }
    static void to(Value& v, const std::vector<T>& all) {
        v.kind = Value::list;
        v.count = (int64_t)all.size();
        v.items = make_list(v.count);
        for (size_t i = 0; i < all.size(); ++i) Convert<T>::to(v.items[i], all[i]);
    }
};

template <class T>
struct Convert<c10::ArrayRef<T>> {
    static void to(Value& v, c10::ArrayRef<T> all) { Convert<std::vector<T>>::to(v, all.vec()); }
};

template <class... T>
struct Convert<std::tuple<T...>> {
    static const char* name() {
        const char* all = "";
        ((all = join(all, all[0] ? ", " : "", Convert<T>::name())), ...);
        return join("Tuple[", all, "]");
    }
    static void to(Value& v, const std::tuple<T...>& t) {
        v.kind = Value::list;
        v.count = (int64_t)sizeof...(T);
        v.items = make_list(v.count);
        std::apply([&v](const T&... each) {
            int64_t i = 0;
            (Convert<T>::to(v.items[i++], each), ...);
        }, t);
    }
    static std::tuple<T...> from(const Value& v) {
        return from(v, std::index_sequence_for<T...>());
    }
    template <size_t... I>
    static std::tuple<T...> from(const Value& v, std::index_sequence<I...>) {
        return {Convert<T>::from(v.items[I])...};
    }
};
template <class A, class B>
struct Convert<std::pair<A, B>> : Convert<std::tuple<A, B>> {
    static void to(Value& v, const std::pair<A, B>& p) {
        Convert<std::tuple<A, B>>::to(v, std::tuple<A, B>(p.first, p.second));
    }
};

// ---- operations

namespace detail {
struct Values {  // as many as there are arguments, given back in the end
    Value* all;
    int64_t count;
    explicit Values(int64_t n) : all(make_list(n)), count(n) {}
    Values(const Values&) = delete;
    ~Values() {
        Value list{Value::list, count, {}};
        list.items = all;
        drop(&list);
    }
};
}  // namespace detail

template <class R, class... A>
R delegated(const char* operation, const A&... given) {
    detail::Values values((int64_t)sizeof...(A)), result(1);
    int64_t i = 0;
    (Convert<std::decay_t<A>>::to(values.all[i++], given), ...);
    if (!delegate(operation, values.all, values.count, result.all)) c10::detail::fail_as_told();
    if constexpr (!std::is_void<R>::value) return Convert<R>::from(result.all[0]);
}

}  // namespace simt::lite
