// thrust's algorithms, each with a policy as its first argument or without.
#pragma once
#include "functional.h"
#include "iterators.h"
#include "vector.h"

namespace thrust {
namespace detail {

// Without a policy: where the ranges are.
template <class... A>
using policy_for = policy<on_device<A...>()>;

namespace of {  // the algorithms, with their policy

template <class P, class In, class N, class Out>
inline Out copy_n(P p, In first, N n, Out out) {
    // Between the host and the device it is a copy; anything but a plain array is staged.
    constexpr bool from = on_device<In>(), to = on_device<Out>();
    constexpr bool crosses = from != to &&
                             !std::is_same<typename system_of<In>::type, any_system_tag>::value;
    if constexpr (crosses) {
        if (!simt::block) {
            using V = kept_of<Out, In>;
            if constexpr (to) {
                const vector<V, true> staged(first, std::next(first, (ptrdiff_t)n));
                auto a = raw(staged.begin());
                auto b = raw(out);
                run(policy<true>(), "thrust::copy", [=]() mutable {
                    for (ptrdiff_t i = 0; i < (ptrdiff_t)n; ++i) b[i] = a[i];
                });
                return out + (ptrdiff_t)n;
            } else {
                const vector<V, false> staged(first, first + (ptrdiff_t)n);
                for (size_t i = 0; i < staged.size(); ++i, ++out) *out = staged[i];
                return out;
            }
        }
    }
    if constexpr (!crosses && !on_device<In, Out>()) {  // iterators of the host's, of any kind
        if (simt::block || !std::is_same<P, policy<true>>::value) {
            for (N i = 0; i < n; ++i, ++first, ++out) *out = *first;
            return out;
        }
    }
    if constexpr (!crosses) {
        auto a = raw(first);
        auto b = raw(out);
        run(p, "thrust::copy", [=]() mutable {
            for (ptrdiff_t i = 0; i < (ptrdiff_t)n; ++i) b[i] = a[i];
        });
    }
    return out + (ptrdiff_t)n;
}
template <class P, class In, class Out>
inline Out copy(P p, In first, In last, Out out) {
    return copy_n(p, first, std::distance(first, last), out);
}
template <class P, class In, class Stencil, class Out, class Predicate>
inline Out copy_if(P p, In first, In last, Stencil stencil, Out out, Predicate f) {
    auto a = raw(first);
    auto s = raw(stencil);
    auto b = raw(out);
    const ptrdiff_t n = last - first;
    return out + answer<ptrdiff_t>(p, "thrust::copy_if", [=]() mutable {
        ptrdiff_t to = 0;
        for (ptrdiff_t i = 0; i < n; ++i)
            if (f(s[i])) b[to++] = a[i];
        return to;
    });
}
template <class P, class In, class Out, class Predicate>
inline Out copy_if(P p, In first, In last, Out out, Predicate f) {
    return copy_if(p, first, last, first, out, f);
}
template <class P, class In, class Out, class Predicate>
inline Out remove_copy_if(P p, In first, In last, Out out, Predicate f) {
    return copy_if(p, first, last, first, out, [f](const auto& v) mutable { return !f(v); });
}
template <class P, class In, class Out, class T>
inline Out remove_copy(P p, In first, In last, Out out, const T& value) {
    return remove_copy_if(p, first, last, out, [value](const auto& v) { return v == value; });
}

// f(i) for each index of a range of n.
template <class P, class F>
inline void each(P p, const char* name, ptrdiff_t n, F f) {
    run(p, name, [=]() mutable {
        for (ptrdiff_t i = 0; i < n; ++i) f(i);
    });
}
template <class P, class It, class T>
inline void fill(P p, It first, It last, const T& value) {
    auto a = raw(first);
    each(p, "thrust::fill", last - first, [=](ptrdiff_t i) mutable { a[i] = value; });
}
template <class P, class It, class N, class T>
inline It fill_n(P p, It first, N n, const T& value) {
    fill(p, first, first + (ptrdiff_t)n, value);
    return first + (ptrdiff_t)n;
}
template <class P, class It, class T>
inline void uninitialized_fill(P p, It first, It last, const T& value) { fill(p, first, last, value); }
template <class P, class In, class Out>
inline Out uninitialized_copy(P p, In first, In last, Out out) { return copy(p, first, last, out); }
template <class P, class It, class T, class S>
inline void sequence(P p, It first, It last, T start, S step) {
    auto a = raw(first);
    using V = value_of<It>;
    each(p, "thrust::sequence", last - first,
         [=](ptrdiff_t i) mutable { a[i] = (V)(start + (V)i * step); });
}
template <class P, class It, class T>
inline void sequence(P p, It first, It last, T start) { sequence(p, first, last, start, (T)1); }
template <class P, class It>
inline void sequence(P p, It first, It last) { sequence(p, first, last, (value_of<It>)0); }
template <class P, class It, class F>
inline void generate(P p, It first, It last, F f) {
    if constexpr (!on_device<It>() && !std::is_same<P, policy<true>>::value) {
        for (; first != last; ++first) *first = f();
    } else {
        auto a = raw(first);
        each(p, "thrust::generate", last - first, [=](ptrdiff_t i) mutable { a[i] = f(); });
    }
}
template <class P, class It, class N, class F>
inline It generate_n(P p, It first, N n, F f) {
    generate(p, first, first + (ptrdiff_t)n, f);
    return first + (ptrdiff_t)n;
}
template <class P, class It, class F>
inline void tabulate(P p, It first, It last, F f) {
    auto a = raw(first);
    each(p, "thrust::tabulate", last - first, [=](ptrdiff_t i) mutable { a[i] = f(i); });
}
template <class P, class It, class F>
inline It for_each(P p, It first, It last, F f) {
    auto a = raw(first);
    each(p, "thrust::for_each", last - first, [=](ptrdiff_t i) mutable { f(a[i]); });
    return last;
}
template <class P, class It, class N, class F>
inline It for_each_n(P p, It first, N n, F f) {
    return for_each(p, first, first + (ptrdiff_t)n, f);
}
template <class P, class In, class Out, class F>
inline Out transform(P p, In first, In last, Out out, F f) {
    auto a = raw(first);
    auto to = raw(out);
    each(p, "thrust::transform", last - first, [=](ptrdiff_t i) mutable { to[i] = f(a[i]); });
    return out + (last - first);
}
template <class P, class A, class B, class Out, class F>
inline Out transform(P p, A first, A last, B second, Out out, F f) {
    auto a = raw(first);
    auto b = raw(second);
    auto to = raw(out);
    each(p, "thrust::transform", last - first, [=](ptrdiff_t i) mutable { to[i] = f(a[i], b[i]); });
    return out + (last - first);
}
template <class P, class In, class Stencil, class Out, class F, class Predicate>
inline Out transform_if(P p, In first, In last, Stencil stencil, Out out, F f, Predicate when) {
    auto a = raw(first);
    auto s = raw(stencil);
    auto to = raw(out);
    each(p, "thrust::transform_if", last - first, [=](ptrdiff_t i) mutable {
        if (when(s[i])) to[i] = f(a[i]);
    });
    return out + (last - first);
}
template <class P, class In, class Out, class F, class Predicate>
inline Out transform_if(P p, In first, In last, Out out, F f, Predicate when) {
    return transform_if(p, first, last, first, out, f, when);
}

// ---- to one value ---------------------------------------------------------------------------

// By halves, so that the rounding errors of a long sum stay as small as a parallel one's.
template <class T, class It, class F>
inline T folded(It a, ptrdiff_t begin, ptrdiff_t end, F& f) {
    if (end - begin > 64) {
        const ptrdiff_t middle = begin + (end - begin) / 2;
        const T left = folded<T>(a, begin, middle, f);
        return (T)f(left, folded<T>(a, middle, end, f));
    }
    T total = (T)a[begin];
    for (ptrdiff_t i = begin + 1; i < end; ++i) total = (T)f(total, (T)a[i]);
    return total;
}
template <class P, class It, class T, class F>
inline T reduce(P p, It first, It last, T initial, F f) {
    auto a = raw(first);
    const ptrdiff_t n = last - first;
    return answer<T>(p, "thrust::reduce", [=]() mutable {
        return n ? (T)f(initial, folded<T>(a, 0, n, f)) : initial;
    });
}
template <class P, class It, class T>
inline T reduce(P p, It first, It last, T initial) {
    return reduce(p, first, last, initial, plus<>());
}
template <class P, class It>
inline value_of<It> reduce(P p, It first, It last) {
    return reduce(p, first, last, value_of<It>());
}
template <class P, class It, class U, class T, class F>
inline T transform_reduce(P p, It first, It last, U unary, T initial, F f) {
    return reduce(p, transform_iterator<U, It>(first, unary), transform_iterator<U, It>(last, unary),
                  initial, f);
}
template <class P, class A, class B, class T, class F, class G>
inline T inner_product(P p, A first, A last, B second, T initial, F sum, G product) {
    auto a = raw(first);
    auto b = raw(second);
    const ptrdiff_t n = last - first;
    return answer<T>(p, "thrust::inner_product", [=]() mutable {
        const auto terms = [&](ptrdiff_t i) { return (T)product(a[i], b[i]); };
        struct Terms {
            decltype(terms)& f;
            T operator[](ptrdiff_t i) const { return f(i); }
        };
        return n ? (T)sum(initial, folded<T>(Terms{terms}, 0, n, sum)) : initial;
    });
}
template <class P, class A, class B, class T>
inline T inner_product(P p, A first, A last, B second, T initial) {
    return inner_product(p, first, last, second, initial, plus<>(), multiplies<>());
}
template <class P, class It, class F>
inline ptrdiff_t count_if(P p, It first, It last, F f) {
    auto a = raw(first);
    const ptrdiff_t n = last - first;
    return answer<ptrdiff_t>(p, "thrust::count_if", [=]() mutable {
        ptrdiff_t count = 0;
        for (ptrdiff_t i = 0; i < n; ++i) count += f(a[i]) ? 1 : 0;
        return count;
    });
}
template <class P, class It, class T>
inline ptrdiff_t count(P p, It first, It last, const T& value) {
    return count_if(p, first, last, [value](const auto& v) { return v == value; });
}
// The first index for which f(i), or n.
template <class P, class F>
inline ptrdiff_t index_of(P p, const char* name, ptrdiff_t n, F f) {
    return answer<ptrdiff_t>(p, name, [=]() mutable {
        ptrdiff_t i = 0;
        while (i < n && !f(i)) ++i;
        return i;
    });
}
template <class P, class It, class F>
inline It find_if(P p, It first, It last, F f) {
    auto a = raw(first);
    return first + index_of(p, "thrust::find_if", last - first,
                            [=](ptrdiff_t i) mutable { return f(a[i]); });
}
template <class P, class It, class F>
inline It find_if_not(P p, It first, It last, F f) {
    return find_if(p, first, last, [f](const auto& v) mutable { return !f(v); });
}
template <class P, class It, class T>
inline It find(P p, It first, It last, const T& value) {
    return find_if(p, first, last, [value](const auto& v) { return v == value; });
}
template <class P, class It, class F>
inline bool all_of(P p, It first, It last, F f) { return find_if_not(p, first, last, f) == last; }
template <class P, class It, class F>
inline bool any_of(P p, It first, It last, F f) { return !(find_if(p, first, last, f) == last); }
template <class P, class It, class F>
inline bool none_of(P p, It first, It last, F f) { return find_if(p, first, last, f) == last; }
template <class P, class A, class B, class F>
inline pair<A, B> mismatch(P p, A first, A last, B second, F same) {
    auto a = raw(first);
    auto b = raw(second);
    const ptrdiff_t at = index_of(p, "thrust::mismatch", last - first,
                                  [=](ptrdiff_t i) mutable { return !same(a[i], b[i]); });
    return {first + at, second + at};
}
template <class P, class A, class B>
inline pair<A, B> mismatch(P p, A first, A last, B second) {
    return mismatch(p, first, last, second, equal_to<>());
}
template <class P, class A, class B, class F>
inline bool equal(P p, A first, A last, B second, F same) {
    return mismatch(p, first, last, second, same).first == last;
}
template <class P, class A, class B>
inline bool equal(P p, A first, A last, B second) {
    return equal(p, first, last, second, equal_to<>());
}
template <class P, class It, class F>
inline It best(P p, It first, It last, F better) {
    auto a = raw(first);
    const ptrdiff_t n = last - first;
    return first + answer<ptrdiff_t>(p, "thrust::min_element", [=]() mutable {
        ptrdiff_t at = 0;
        for (ptrdiff_t i = 1; i < n; ++i)
            if (better(a[i], a[at])) at = i;
        return at;
    });
}
template <class P, class It, class F>
inline It min_element(P p, It first, It last, F f) { return best(p, first, last, f); }
template <class P, class It>
inline It min_element(P p, It first, It last) { return best(p, first, last, less<>()); }
template <class P, class It, class F>
inline It max_element(P p, It first, It last, F f) {
    return best(p, first, last, [f](const auto& x, const auto& y) mutable { return f(y, x); });
}
template <class P, class It>
inline It max_element(P p, It first, It last) { return max_element(p, first, last, less<>()); }
template <class P, class It, class F>
inline pair<It, It> minmax_element(P p, It first, It last, F f) {
    return {min_element(p, first, last, f), max_element(p, first, last, f)};
}
template <class P, class It>
inline pair<It, It> minmax_element(P p, It first, It last) {
    return minmax_element(p, first, last, less<>());
}
template <class P, class It, class F>
inline bool is_sorted(P p, It first, It last, F f) {
    auto a = raw(first);
    const ptrdiff_t n = last - first;
    return n < 2 || index_of(p, "thrust::is_sorted", n - 1, [=](ptrdiff_t i) mutable {
                        return f(a[i + 1], a[i]);
                    }) == n - 1;
}
template <class P, class It>
inline bool is_sorted(P p, It first, It last) { return is_sorted(p, first, last, less<>()); }

// ---- scans ----------------------------------------------------------------------------------

template <class P, class In, class Out, class F>
inline Out inclusive_scan(P p, In first, In last, Out out, F f) {
    auto a = raw(first);
    auto to = raw(out);
    const ptrdiff_t n = last - first;
    using T = value_of<In>;
    run(p, "thrust::inclusive_scan", [=]() mutable {
        if (!n) return;
        T total = a[0];
        to[0] = total;
        for (ptrdiff_t i = 1; i < n; ++i) to[i] = total = (T)f(total, (T)a[i]);
    });
    return out + n;
}
template <class P, class In, class Out>
inline Out inclusive_scan(P p, In first, In last, Out out) {
    return inclusive_scan(p, first, last, out, plus<>());
}
template <class P, class In, class Out, class T, class F>
inline Out exclusive_scan(P p, In first, In last, Out out, T initial, F f) {
    auto a = raw(first);
    auto to = raw(out);
    const ptrdiff_t n = last - first;
    run(p, "thrust::exclusive_scan", [=]() mutable {
        T total = initial;
        for (ptrdiff_t i = 0; i < n; ++i) {
            const T next = (T)f(total, (T)a[i]);  // `out` may be the input
            to[i] = total;
            total = next;
        }
    });
    return out + n;
}
template <class P, class In, class Out, class T>
inline Out exclusive_scan(P p, In first, In last, Out out, T initial) {
    return exclusive_scan(p, first, last, out, initial, plus<>());
}
template <class P, class In, class Out>
inline Out exclusive_scan(P p, In first, In last, Out out) {
    return exclusive_scan(p, first, last, out, value_of<In>());
}
template <class P, class In, class Out, class U, class F>
inline Out transform_inclusive_scan(P p, In first, In last, Out out, U unary, F f) {
    return inclusive_scan(p, transform_iterator<U, In>(first, unary),
                          transform_iterator<U, In>(last, unary), out, f);
}
template <class P, class In, class Out, class U, class T, class F>
inline Out transform_exclusive_scan(P p, In first, In last, Out out, U unary, T initial, F f) {
    return exclusive_scan(p, transform_iterator<U, In>(first, unary),
                          transform_iterator<U, In>(last, unary), out, initial, f);
}
template <class P, class K, class V, class Out, class Same, class F>
inline Out inclusive_scan_by_key(P p, K first, K last, V values, Out out, Same same, F f) {
    auto k = raw(first);
    auto a = raw(values);
    auto to = raw(out);
    const ptrdiff_t n = last - first;
    using T = value_of<V>;
    run(p, "thrust::inclusive_scan_by_key", [=]() mutable {
        if (!n) return;
        T total = a[0];
        to[0] = total;
        for (ptrdiff_t i = 1; i < n; ++i)
            to[i] = total = same(k[i - 1], k[i]) ? (T)f(total, (T)a[i]) : (T)a[i];
    });
    return out + n;
}
template <class P, class K, class V, class Out, class Same>
inline Out inclusive_scan_by_key(P p, K first, K last, V values, Out out, Same same) {
    return inclusive_scan_by_key(p, first, last, values, out, same, plus<>());
}
template <class P, class K, class V, class Out>
inline Out inclusive_scan_by_key(P p, K first, K last, V values, Out out) {
    return inclusive_scan_by_key(p, first, last, values, out, equal_to<>());
}
template <class P, class K, class V, class Out, class T, class Same, class F>
inline Out exclusive_scan_by_key(P p, K first, K last, V values, Out out, T initial, Same same,
                                 F f) {
    auto k = raw(first);
    auto a = raw(values);
    auto to = raw(out);
    const ptrdiff_t n = last - first;
    run(p, "thrust::exclusive_scan_by_key", [=]() mutable {
        T total = initial;
        for (ptrdiff_t i = 0; i < n; ++i) {
            if (i && !same(k[i - 1], k[i])) total = initial;
            const T next = (T)f(total, (T)a[i]);
            to[i] = total;
            total = next;
        }
    });
    return out + n;
}
template <class P, class K, class V, class Out, class T>
inline Out exclusive_scan_by_key(P p, K first, K last, V values, Out out, T initial) {
    return exclusive_scan_by_key(p, first, last, values, out, initial, equal_to<>(), plus<>());
}
template <class P, class K, class V, class Out>
inline Out exclusive_scan_by_key(P p, K first, K last, V values, Out out) {
    return exclusive_scan_by_key(p, first, last, values, out, value_of<V>());
}
template <class P, class In, class Out, class F>
inline Out adjacent_difference(P p, In first, In last, Out out, F f) {
    auto a = raw(first);
    auto to = raw(out);
    const ptrdiff_t n = last - first;
    using T = value_of<In>;
    run(p, "thrust::adjacent_difference", [=]() mutable {
        if (!n) return;
        T before = a[0];
        to[0] = before;
        for (ptrdiff_t i = 1; i < n; ++i) {
            const T now = a[i];
            to[i] = f(now, before);
            before = now;
        }
    });
    return out + n;
}
template <class P, class In, class Out>
inline Out adjacent_difference(P p, In first, In last, Out out) {
    return adjacent_difference(p, first, last, out, minus<>());
}
// Of each run of equal keys, one key and the values' sum.
template <class P, class K, class V, class KeysOut, class ValuesOut, class Same, class F>
inline pair<KeysOut, ValuesOut> reduce_by_key(P p, K first, K last, V values, KeysOut keys_out,
                                              ValuesOut values_out, Same same, F f) {
    auto k = raw(first);
    auto a = raw(values);
    auto ko = raw(keys_out);
    auto vo = raw(values_out);
    const ptrdiff_t n = last - first;
    const ptrdiff_t runs = answer<ptrdiff_t>(p, "thrust::reduce_by_key", [=]() mutable {
        ptrdiff_t to = 0;
        for (ptrdiff_t i = 0; i < n; ++to) {
            const value_of<K> key = k[i];
            value_of<V> total = a[i];
            for (++i; i < n && same(k[i - 1], k[i]); ++i) total = f(total, (value_of<V>)a[i]);
            ko[to] = key;
            vo[to] = total;
        }
        return to;
    });
    return {keys_out + runs, values_out + runs};
}
template <class P, class K, class V, class KeysOut, class ValuesOut, class Same>
inline pair<KeysOut, ValuesOut> reduce_by_key(P p, K first, K last, V values, KeysOut keys_out,
                                              ValuesOut values_out, Same same) {
    return reduce_by_key(p, first, last, values, keys_out, values_out, same, plus<>());
}
template <class P, class K, class V, class KeysOut, class ValuesOut>
inline pair<KeysOut, ValuesOut> reduce_by_key(P p, K first, K last, V values, KeysOut keys_out,
                                              ValuesOut values_out) {
    return reduce_by_key(p, first, last, values, keys_out, values_out, equal_to<>());
}

// ---- orders ---------------------------------------------------------------------------------

// Merges runs of growing length; `order` holds n positions, `other` room for as many.
template <class Less>
inline void sort_positions(ptrdiff_t* order, ptrdiff_t* other, ptrdiff_t n, Less before) {
    for (ptrdiff_t i = 0; i < n; ++i) order[i] = i;
    ptrdiff_t* from = order;
    ptrdiff_t* to = other;
    for (ptrdiff_t width = 1; width < n; width *= 2) {
        for (ptrdiff_t begin = 0; begin < n; begin += 2 * width) {
            const ptrdiff_t middle = begin + width < n ? begin + width : n;
            const ptrdiff_t end = middle + width < n ? middle + width : n;
            ptrdiff_t a = begin, b = middle;
            for (ptrdiff_t i = begin; i < end; ++i)
                to[i] = b >= end || (a < middle && !before(from[b], from[a])) ? from[a++] : from[b++];
        }
        ptrdiff_t* kept = from;
        from = to;
        to = kept;
    }
    for (ptrdiff_t i = 0; from != order && i < n; ++i) order[i] = from[i];
}
// Puts a[order[i]] at a[i], through room for a copy.
template <class It, class T>
inline void arrange(It a, T* room, const ptrdiff_t* order, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; ++i) new ((void*)(room + i)) T(a[order[i]]);
    for (ptrdiff_t i = 0; i < n; ++i) a[i] = room[i];
}
template <class P, class It, class F>
inline void stable_sort(P p, It first, It last, F f) {
    const ptrdiff_t n = last - first;
    using T = value_of<It>;
    scratch<ptrdiff_t> positions(p, 2 * n);
    scratch<T> values(p, n);
    auto a = raw(first);
    ptrdiff_t* order = positions.get();
    T* room = values.get();
    run(p, "thrust::sort", [=]() mutable {
        sort_positions(order, order + n, n,
                       [&](ptrdiff_t x, ptrdiff_t y) { return f((T)a[x], (T)a[y]); });
        arrange(a, room, order, n);
    });
}
template <class P, class It>
inline void stable_sort(P p, It first, It last) { stable_sort(p, first, last, less<>()); }
template <class P, class It, class F>
inline void sort(P p, It first, It last, F f) { stable_sort(p, first, last, f); }
template <class P, class It>
inline void sort(P p, It first, It last) { stable_sort(p, first, last, less<>()); }
template <class P, class K, class V, class F>
inline void stable_sort_by_key(P p, K first, K last, V values, F f) {
    const ptrdiff_t n = last - first;
    using T = value_of<K>;
    using U = value_of<V>;
    scratch<ptrdiff_t> positions(p, 2 * n);
    scratch<T> keys_room(p, n);
    scratch<U> values_room(p, n);
    auto k = raw(first);
    auto v = raw(values);
    ptrdiff_t* order = positions.get();
    T* room = keys_room.get();
    U* more_room = values_room.get();
    run(p, "thrust::sort_by_key", [=]() mutable {
        sort_positions(order, order + n, n,
                       [&](ptrdiff_t x, ptrdiff_t y) { return f((T)k[x], (T)k[y]); });
        arrange(k, room, order, n);
        arrange(v, more_room, order, n);
    });
}
template <class P, class K, class V>
inline void stable_sort_by_key(P p, K first, K last, V values) {
    stable_sort_by_key(p, first, last, values, less<>());
}
template <class P, class K, class V, class F>
inline void sort_by_key(P p, K first, K last, V values, F f) {
    stable_sort_by_key(p, first, last, values, f);
}
template <class P, class K, class V>
inline void sort_by_key(P p, K first, K last, V values) {
    stable_sort_by_key(p, first, last, values, less<>());
}
template <class P, class K, class V, class KO, class VO, class F>
inline pair<KO, VO> unique_by_key_copy(P p, K first, K last, V values, KO keys_out, VO values_out,
                                       F same) {
    auto k = raw(first);
    auto v = raw(values);
    auto ko = raw(keys_out);
    auto vo = raw(values_out);
    const ptrdiff_t n = last - first;
    const ptrdiff_t kept = answer<ptrdiff_t>(p, "thrust::unique_by_key", [=]() mutable {
        ptrdiff_t to = 0;
        for (ptrdiff_t i = 0; i < n;) {
            const value_of<K> key = k[i];
            ko[to] = key;
            vo[to++] = v[i];
            for (++i; i < n && same(key, k[i]);) ++i;
        }
        return to;
    });
    return {keys_out + kept, values_out + kept};
}
template <class P, class K, class V, class KO, class VO>
inline pair<KO, VO> unique_by_key_copy(P p, K first, K last, V values, KO keys_out, VO values_out) {
    return unique_by_key_copy(p, first, last, values, keys_out, values_out, equal_to<>());
}
template <class P, class K, class V, class F>
inline pair<K, V> unique_by_key(P p, K first, K last, V values, F same) {
    return unique_by_key_copy(p, first, last, values, first, values, same);
}
template <class P, class K, class V>
inline pair<K, V> unique_by_key(P p, K first, K last, V values) {
    return unique_by_key(p, first, last, values, equal_to<>());
}
template <class P, class In, class Out, class F>
inline Out unique_copy(P p, In first, In last, Out out, F same) {
    return unique_by_key_copy(p, first, last, first, out, discard_iterator<>(), same).first;
}
template <class P, class In, class Out>
inline Out unique_copy(P p, In first, In last, Out out) {
    return unique_copy(p, first, last, out, equal_to<>());
}
template <class P, class It, class F>
inline It unique(P p, It first, It last, F same) { return unique_copy(p, first, last, first, same); }
template <class P, class It>
inline It unique(P p, It first, It last) { return unique(p, first, last, equal_to<>()); }
template <class P, class It, class Stencil, class F>
inline It remove_if(P p, It first, It last, Stencil stencil, F f) {
    return copy_if(p, first, last, stencil, first, [f](const auto& v) mutable { return !f(v); });
}
template <class P, class It, class F>
inline It remove_if(P p, It first, It last, F f) {
    return copy_if(p, first, last, first, first, [f](const auto& v) mutable { return !f(v); });
}
template <class P, class It, class T>
inline It remove(P p, It first, It last, const T& value) {
    return remove_if(p, first, last, [value](const auto& v) { return v == value; });
}
template <class P, class It, class Stencil, class F>
inline It stable_partition(P p, It first, It last, Stencil stencil, F f) {
    const ptrdiff_t n = last - first;
    using T = value_of<It>;
    scratch<T> values(p, n);
    auto a = raw(first);
    auto s = raw(stencil);
    T* room = values.get();
    return first + answer<ptrdiff_t>(p, "thrust::partition", [=]() mutable {
        ptrdiff_t yes = 0, no = 0;
        for (ptrdiff_t i = 0; i < n; ++i) {
            if (f(s[i])) a[yes++] = a[i];
            else new ((void*)(room + no++)) T(a[i]);
        }
        for (ptrdiff_t i = 0; i < no; ++i) a[yes + i] = room[i];
        return yes;
    });
}
template <class P, class It, class F>
inline It stable_partition(P p, It first, It last, F f) {
    return stable_partition(p, first, last, first, f);
}
template <class P, class It, class... A>
inline It partition(P p, It first, It last, A... rest) {
    return stable_partition(p, first, last, rest...);
}
template <class P, class In, class Yes, class No, class F>
inline pair<Yes, No> partition_copy(P p, In first, In last, Yes yes, No no, F f) {
    return {copy_if(p, first, last, yes, f), remove_copy_if(p, first, last, no, f)};
}
template <class P, class A, class B, class Out, class F>
inline Out merge(P p, A first, A last, B second, B end, Out out, F f) {
    auto a = raw(first);
    auto b = raw(second);
    auto to = raw(out);
    const ptrdiff_t n = last - first, m = end - second;
    run(p, "thrust::merge", [=]() mutable {
        for (ptrdiff_t i = 0, j = 0; i + j < n + m;) {
            const bool left = j >= m || (i < n && !f(b[j], a[i]));
            const ptrdiff_t at = i + j;
            if (left) to[at] = a[i++];
            else to[at] = b[j++];
        }
    });
    return out + (n + m);
}
template <class P, class A, class B, class Out>
inline Out merge(P p, A first, A last, B second, B end, Out out) {
    return merge(p, first, last, second, end, out, less<>());
}

// ---- places ---------------------------------------------------------------------------------

template <class P, class Map, class In, class Out>
inline Out gather(P p, Map first, Map last, In in, Out out) {
    auto m = raw(first);
    auto a = raw(in);
    auto to = raw(out);
    each(p, "thrust::gather", last - first,
         [=](ptrdiff_t i) mutable { to[i] = a[(ptrdiff_t)(value_of<Map>)m[i]]; });
    return out + (last - first);
}
template <class P, class In, class Map, class Out>
inline void scatter(P p, In first, In last, Map map, Out out) {
    auto a = raw(first);
    auto m = raw(map);
    auto to = raw(out);
    each(p, "thrust::scatter", last - first,
         [=](ptrdiff_t i) mutable { to[(ptrdiff_t)(value_of<Map>)m[i]] = a[i]; });
}
template <class P, class In, class Map, class Stencil, class Out, class F>
inline void scatter_if(P p, In first, In last, Map map, Stencil stencil, Out out, F f) {
    auto a = raw(first);
    auto m = raw(map);
    auto s = raw(stencil);
    auto to = raw(out);
    each(p, "thrust::scatter_if", last - first, [=](ptrdiff_t i) mutable {
        if (f(s[i])) to[(ptrdiff_t)(value_of<Map>)m[i]] = a[i];
    });
}
template <class P, class In, class Map, class Stencil, class Out>
inline void scatter_if(P p, In first, In last, Map map, Stencil stencil, Out out) {
    scatter_if(p, first, last, map, stencil, out, identity<>());
}
template <class P, class It, class F, class T>
inline void replace_if(P p, It first, It last, F f, const T& value) {
    auto a = raw(first);
    each(p, "thrust::replace_if", last - first, [=](ptrdiff_t i) mutable {
        if (f(a[i])) a[i] = value;
    });
}
template <class P, class It, class T>
inline void replace(P p, It first, It last, const T& old, const T& value) {
    replace_if(p, first, last, [old](const auto& v) { return v == old; }, value);
}
template <class P, class A, class B>
inline B swap_ranges(P p, A first, A last, B second) {
    auto a = raw(first);
    auto b = raw(second);
    each(p, "thrust::swap_ranges", last - first, [=](ptrdiff_t i) mutable {
        value_of<A> kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    });
    return second + (last - first);
}
template <class P, class It>
inline void reverse(P p, It first, It last) {
    auto a = raw(first);
    const ptrdiff_t n = last - first;
    each(p, "thrust::reverse", n / 2, [=](ptrdiff_t i) mutable {
        value_of<It> kept = a[i];
        a[i] = a[n - 1 - i];
        a[n - 1 - i] = kept;
    });
}
template <class P, class In, class Out>
inline Out reverse_copy(P p, In first, In last, Out out) {
    auto a = raw(first);
    auto to = raw(out);
    const ptrdiff_t n = last - first;
    each(p, "thrust::reverse_copy", n, [=](ptrdiff_t i) mutable { to[i] = a[n - 1 - i]; });
    return out + n;
}
// The first position whose value is not `before` the sought one.
template <class It, class F>
inline ptrdiff_t bound(It a, ptrdiff_t n, F before) {
    ptrdiff_t low = 0;
    while (n > 0) {
        const ptrdiff_t half = n / 2;
        if (before(a[low + half])) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}
template <class P, class It, class T>
inline It lower_bound(P p, It first, It last, const T& value) {
    auto a = raw(first);
    const ptrdiff_t n = last - first;
    return first + answer<ptrdiff_t>(p, "thrust::lower_bound", [=] {
        return bound(a, n, [&](const auto& v) { return v < value; });
    });
}
template <class P, class It, class T>
inline It upper_bound(P p, It first, It last, const T& value) {
    auto a = raw(first);
    const ptrdiff_t n = last - first;
    return first + answer<ptrdiff_t>(p, "thrust::upper_bound", [=] {
        return bound(a, n, [&](const auto& v) { return !(value < v); });
    });
}
template <class P, class It, class Values, class Out>
inline Out lower_bound(P p, It first, It last, Values from, Values to, Out out) {
    auto a = raw(first);
    auto v = raw(from);
    auto o = raw(out);
    const ptrdiff_t n = last - first;
    each(p, "thrust::lower_bound", to - from, [=](ptrdiff_t i) mutable {
        const value_of<Values> value = v[i];
        o[i] = bound(a, n, [&](const auto& x) { return x < value; });
    });
    return out + (to - from);
}
template <class P, class It, class Values, class Out>
inline Out upper_bound(P p, It first, It last, Values from, Values to, Out out) {
    auto a = raw(first);
    auto v = raw(from);
    auto o = raw(out);
    const ptrdiff_t n = last - first;
    each(p, "thrust::upper_bound", to - from, [=](ptrdiff_t i) mutable {
        const value_of<Values> value = v[i];
        o[i] = bound(a, n, [&](const auto& x) { return !(value < x); });
    });
    return out + (to - from);
}
template <class P, class It, class T>
inline bool binary_search(P p, It first, It last, const T& value) {
    auto a = raw(first);
    const ptrdiff_t n = last - first;
    return answer<bool>(p, "thrust::binary_search", [=] {
        const ptrdiff_t at = bound(a, n, [&](const auto& v) { return v < value; });
        return at < n && !(value < a[at]);
    });
}

}  // namespace of
}  // namespace detail

#define SIMT_THRUST(name)                                                                          \
    template <class First, class... A>                                                             \
    inline auto name(const First& first, const A&... rest) {                                       \
        if constexpr (detail::is_policy<First>::value)                                             \
            return detail::of::name(first, rest...);                                               \
        else                                                                                       \
            return detail::of::name(detail::policy_for<First, A...>(), first, rest...);            \
    }
SIMT_THRUST(adjacent_difference) SIMT_THRUST(all_of) SIMT_THRUST(any_of) SIMT_THRUST(binary_search)
SIMT_THRUST(copy) SIMT_THRUST(copy_if) SIMT_THRUST(copy_n) SIMT_THRUST(count) SIMT_THRUST(count_if)
SIMT_THRUST(equal) SIMT_THRUST(exclusive_scan) SIMT_THRUST(exclusive_scan_by_key)
SIMT_THRUST(fill) SIMT_THRUST(fill_n) SIMT_THRUST(find) SIMT_THRUST(find_if)
SIMT_THRUST(find_if_not) SIMT_THRUST(for_each) SIMT_THRUST(for_each_n) SIMT_THRUST(gather)
SIMT_THRUST(generate) SIMT_THRUST(generate_n) SIMT_THRUST(inclusive_scan)
SIMT_THRUST(inclusive_scan_by_key) SIMT_THRUST(inner_product) SIMT_THRUST(is_sorted)
SIMT_THRUST(lower_bound) SIMT_THRUST(max_element) SIMT_THRUST(merge) SIMT_THRUST(min_element)
SIMT_THRUST(minmax_element) SIMT_THRUST(mismatch) SIMT_THRUST(none_of) SIMT_THRUST(partition)
SIMT_THRUST(partition_copy) SIMT_THRUST(reduce) SIMT_THRUST(reduce_by_key) SIMT_THRUST(remove)
SIMT_THRUST(remove_copy) SIMT_THRUST(remove_copy_if) SIMT_THRUST(remove_if) SIMT_THRUST(replace)
SIMT_THRUST(replace_if) SIMT_THRUST(reverse) SIMT_THRUST(reverse_copy) SIMT_THRUST(scatter)
SIMT_THRUST(scatter_if) SIMT_THRUST(sequence) SIMT_THRUST(sort) SIMT_THRUST(sort_by_key)
SIMT_THRUST(stable_partition) SIMT_THRUST(stable_sort) SIMT_THRUST(stable_sort_by_key)
SIMT_THRUST(swap_ranges) SIMT_THRUST(tabulate) SIMT_THRUST(transform)
SIMT_THRUST(transform_exclusive_scan) SIMT_THRUST(transform_if)
SIMT_THRUST(transform_inclusive_scan) SIMT_THRUST(transform_reduce)
SIMT_THRUST(uninitialized_copy) SIMT_THRUST(uninitialized_fill) SIMT_THRUST(unique)
SIMT_THRUST(unique_by_key) SIMT_THRUST(unique_by_key_copy) SIMT_THRUST(unique_copy)
SIMT_THRUST(upper_bound)
#undef SIMT_THRUST

}  // namespace thrust
