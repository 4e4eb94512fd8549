// thrust's iterators: each has raw(), itself over what its own iterators are in a loop.
#pragma once
#include "core.h"

namespace thrust {
namespace detail {

template <class It>
using reference_of = decltype(*std::declval<const It&>());
template <class... It>
using system_of_all = std::conditional_t<
    on_device<It...>(), device_system_tag,
    std::conditional_t<(std::is_same<typename system_of<It>::type, host_system_tag>::value || ...),
                       host_system_tag, any_system_tag>>;

}  // namespace detail

template <class T, class System = void, class Traversal = void, class Difference = ptrdiff_t>
struct counting_iterator : iterator_facade_<counting_iterator<T>, T, T> {
    T first;
    counting_iterator(T first = T()) : first(first) {}
    T at(ptrdiff_t n) const { return (T)(first + (T)n); }
    void move(ptrdiff_t n) { first = (T)(first + (T)n); }
    ptrdiff_t position() const { return (ptrdiff_t)first; }
};
template <class T>
inline counting_iterator<T> make_counting_iterator(T first) { return counting_iterator<T>(first); }

template <class T, class Incrementable = void, class System = void>
struct constant_iterator : iterator_facade_<constant_iterator<T>, T, T> {
    T value;
    ptrdiff_t offset;
    constant_iterator(T value = T(), ptrdiff_t offset = 0) : value(value), offset(offset) {}
    T at(ptrdiff_t) const { return value; }
    void move(ptrdiff_t n) { offset += n; }
    ptrdiff_t position() const { return offset; }
};
template <class T>
inline constant_iterator<T> make_constant_iterator(T value) { return constant_iterator<T>(value); }

namespace detail {
struct anything {
    template <class T>
    const anything& operator=(const T&) const { return *this; }
};
}  // namespace detail
template <class System = void>
struct discard_iterator
    : iterator_facade_<discard_iterator<System>, void, detail::anything, void> {
    ptrdiff_t offset;
    explicit discard_iterator(ptrdiff_t offset = 0) : offset(offset) {}
    detail::anything at(ptrdiff_t) const { return {}; }
    void move(ptrdiff_t n) { offset += n; }
    ptrdiff_t position() const { return offset; }
};
inline discard_iterator<> make_discard_iterator(ptrdiff_t offset = 0) {
    return discard_iterator<>(offset);
}

template <class F, class It, class Reference = void, class Value = void>
struct transform_iterator
    : iterator_facade_<transform_iterator<F, It>,
                       std::decay_t<decltype(std::declval<F&>()(
                           std::declval<detail::reference_of<detail::raw_t<It>>>()))>,
                       std::decay_t<decltype(std::declval<F&>()(
                           std::declval<detail::reference_of<detail::raw_t<It>>>()))>> {
    using system_tag = typename detail::system_of<It>::type;
    It base_;
    F f;
    transform_iterator(It base, F f = F()) : base_(base), f(f) {}
    auto at(ptrdiff_t n) const -> typename transform_iterator::value_type {
        return const_cast<F&>(f)((detail::value_of<It>)base_[n]);
    }
    void move(ptrdiff_t n) { base_ += n; }
    friend ptrdiff_t operator-(const transform_iterator& a, const transform_iterator& b) {
        return a.base_ - b.base_;
    }
    friend bool operator==(const transform_iterator& a, const transform_iterator& b) {
        return a.base_ == b.base_;
    }
    friend bool operator!=(const transform_iterator& a, const transform_iterator& b) {
        return a.base_ != b.base_;
    }
    It base() const { return base_; }
    auto raw() const {
        return transform_iterator<F, detail::raw_t<It>>(detail::raw(base_), f);
    }
};
template <class F, class It>
inline transform_iterator<F, It> make_transform_iterator(It base, F f) { return {base, f}; }

template <class Values, class Map>
struct permutation_iterator
    : iterator_facade_<permutation_iterator<Values, Map>, detail::value_of<Values>,
                       detail::reference_of<Values>> {
    using system_tag = detail::system_of_all<Values, Map>;
    Values values;
    Map map;
    permutation_iterator(Values values, Map map) : values(values), map(map) {}
    detail::reference_of<Values> at(ptrdiff_t n) const {
        return values[(ptrdiff_t)(detail::value_of<Map>)map[n]];
    }
    void move(ptrdiff_t n) { map += n; }
    friend ptrdiff_t operator-(const permutation_iterator& a, const permutation_iterator& b) {
        return a.map - b.map;
    }
    friend bool operator==(const permutation_iterator& a, const permutation_iterator& b) {
        return a.map == b.map;
    }
    friend bool operator!=(const permutation_iterator& a, const permutation_iterator& b) {
        return a.map != b.map;
    }
    auto raw() const {
        return permutation_iterator<detail::raw_t<Values>, detail::raw_t<Map>>(detail::raw(values),
                                                                               detail::raw(map));
    }
};
template <class Values, class Map>
inline permutation_iterator<Values, Map> make_permutation_iterator(Values values, Map map) {
    return {values, map};
}

template <class Tuple>
struct zip_iterator;
template <class... It>
struct zip_iterator<std::tuple<It...>>
    : iterator_facade_<zip_iterator<std::tuple<It...>>, std::tuple<detail::value_of<It>...>,
                       std::tuple<detail::reference_of<It>...>> {
    using system_tag = detail::system_of_all<It...>;
    std::tuple<It...> all;
    zip_iterator() = default;
    zip_iterator(std::tuple<It...> all) : all(all) {}
    std::tuple<detail::reference_of<It>...> at(ptrdiff_t n) const {
        return std::apply(
            [n](const It&... it) { return std::tuple<detail::reference_of<It>...>(it[n]...); }, all);
    }
    void move(ptrdiff_t n) {
        std::apply([n](It&... it) { ((it += n), ...); }, all);
    }
    const std::tuple<It...>& get_iterator_tuple() const { return all; }
    friend ptrdiff_t operator-(const zip_iterator& a, const zip_iterator& b) {
        return std::get<0>(a.all) - std::get<0>(b.all);
    }
    friend bool operator==(const zip_iterator& a, const zip_iterator& b) {
        return std::get<0>(a.all) == std::get<0>(b.all);
    }
    friend bool operator!=(const zip_iterator& a, const zip_iterator& b) { return !(a == b); }
    friend bool operator<(const zip_iterator& a, const zip_iterator& b) { return a - b < 0; }
    auto raw() const {
        return std::apply(
            [](const It&... it) {
                return zip_iterator<std::tuple<detail::raw_t<It>...>>(
                    std::tuple<detail::raw_t<It>...>(detail::raw(it)...));
            },
            all);
    }
};
template <class... It>
inline zip_iterator<std::tuple<It...>> make_zip_iterator(const std::tuple<It...>& all) {
    return zip_iterator<std::tuple<It...>>(all);
}
template <class First, class Second, class... It>
inline auto make_zip_iterator(First a, Second b, It... it) {
    return zip_iterator<std::tuple<First, Second, It...>>(
        std::tuple<First, Second, It...>(a, b, it...));
}

template <class It>
struct reverse_iterator
    : iterator_facade_<reverse_iterator<It>, detail::value_of<It>, detail::reference_of<It>> {
    using system_tag = typename detail::system_of<It>::type;
    It base_;
    explicit reverse_iterator(It base) : base_(base) {}
    detail::reference_of<It> at(ptrdiff_t n) const { return base_[-n - 1]; }
    void move(ptrdiff_t n) { base_ -= n; }
    It base() const { return base_; }
    friend ptrdiff_t operator-(const reverse_iterator& a, const reverse_iterator& b) {
        return b.base_ - a.base_;
    }
    friend bool operator==(const reverse_iterator& a, const reverse_iterator& b) {
        return a.base_ == b.base_;
    }
    friend bool operator!=(const reverse_iterator& a, const reverse_iterator& b) {
        return a.base_ != b.base_;
    }
    auto raw() const { return reverse_iterator<detail::raw_t<It>>(detail::raw(base_)); }
};
template <class It>
inline reverse_iterator<It> make_reverse_iterator(It it) { return reverse_iterator<It>(it); }

}  // namespace thrust
