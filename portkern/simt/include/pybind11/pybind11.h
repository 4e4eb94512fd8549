// Bindings: PYBIND11_MODULE lists a library's functions in a table that portkern/simt/torch_extension/bindings.py
// reads and calls through the runtime's C interface. Python itself is not involved.
#pragma once
#include <deque>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../ATen/core/Tensor.h"
#include "../simt/lite.h"

namespace simt::lite {

// What keeps an argument alive during the call.
template <class P>
struct Kept {
    using type = P;
};
template <class T>
struct Kept<c10::ArrayRef<T>> {
    using type = std::vector<T>;
};
template <class P>
using KeptFor = typename Kept<std::decay_t<P>>::type;

// ---- functions

// Inside a catch block: the exception becomes what error() returns. Once for a library.
__attribute__((noinline, cold)) inline void keep_failure() {
    try {
        throw;
    } catch (const c10::IndexError& e) {
        fail("IndexError", e.what());
    } catch (const std::out_of_range& e) {
        fail("IndexError", e.what());
    } catch (const c10::TypeError& e) {
        fail("TypeError", e.what());
    } catch (const c10::ValueError& e) {
        fail("ValueError", e.what());
    } catch (const std::invalid_argument& e) {
        fail("ValueError", e.what());
    } catch (const c10::NotImplementedError& e) {
        fail("NotImplementedError", e.what());
    } catch (const std::exception& e) {
        fail("RuntimeError", e.what());
    } catch (...) {
        fail("RuntimeError", "an exception of an unknown type");
    }
}

// One per type of function: those with the same parameters share it.
template <class R, class... P>
struct Bound {
    template <class F>
    static bool run(F& function, const Value* arguments, Value* result) {
        try {
            run(function, arguments, result, std::index_sequence_for<P...>());
            return true;
        } catch (...) {
            keep_failure();
            return false;
        }
    }
    template <class F, size_t... I>
    static void run(F& function, [[maybe_unused]] const Value* arguments, Value* result,
                    std::index_sequence<I...>) {
        [[maybe_unused]] std::tuple<KeptFor<P>...> kept{
            Convert<KeptFor<P>>::from(arguments[I])...};
        if constexpr (std::is_void<R>::value) {
            function(static_cast<P>(std::get<I>(kept))...);
            result->kind = Value::none;
        } else {
            Convert<std::decay_t<R>>::to(*result, function(static_cast<P>(std::get<I>(kept))...));
        }
    }
    static Function* add(Module* module, const char* name) {
        const char* result = "None";
        if constexpr (!std::is_void<R>::value) result = Convert<std::decay_t<R>>::name();
        Function* made = add_function(module, name, result);
        (add_argument(made, Convert<KeptFor<P>>::name()), ...);
        return made;
    }
};

template <class F>
struct Signature : Signature<decltype(&F::operator())> {};  // lambdas
template <class R, class... P>
struct Signature<R (*)(P...)> : Bound<R, P...> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...) const> : Bound<R, P...> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...)> : Bound<R, P...> {};

}  // namespace simt::lite

namespace pybind11 {

struct none {};

// A default, to be attached to an argument.
struct arg_v {
    const char* name;
    simt::lite::Value value;
};
struct arg {
    const char* name;
    explicit constexpr arg(const char* name) : name(name) {}
    arg& none(bool = true) { return *this; }
    arg& noconvert(bool = true) { return *this; }
    template <class T>
    arg_v operator=(T&& value) const {
        arg_v with{name, {}};
        if constexpr (!std::is_same<std::decay_t<T>, pybind11::none>::value)
            simt::lite::Convert<std::decay_t<T>>::to(with.value, value);
        return with;
    }
};
inline namespace literals {
constexpr arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals

struct gil_scoped_release {};
struct gil_scoped_acquire {};
template <class... T>
struct call_guard {};
enum class return_value_policy { automatic, copy, move, reference, take_ownership };

class module_ {
    struct Text {  // module_.doc() = "..."
        const char** to;
        Text& operator=(const char* text) {
            *to = text;
            return *this;
        }
    };

  public:
    explicit module_(simt::lite::Module* table) : table_(table) {}
    Text doc() { return {&table_->doc}; }

    // `extra`: a description, py::arg() of all parameters in order, defaults by py::arg() = value.
    template <class F, class... Extra>
    module_& def(const char* name, F&& function, const Extra&... extra) {
        using Plain = std::decay_t<F>;
        using Signature = simt::lite::Signature<Plain>;
        Function* made = Signature::add(table_, name);
        made->code = new Plain(std::forward<F>(function));
        made->call = [](void* code, const simt::lite::Value* arguments, simt::lite::Value* result) {
            return Signature::run(*static_cast<Plain*>(code), arguments, result);
        };
        Argument* at = made->arguments;
        (describe(made, at, extra), ...);
        return *this;
    }

  private:
    using Function = simt::lite::Function;
    using Argument = simt::lite::Argument;
    static void describe(Function* f, Argument*&, const char* doc) { f->doc = doc; }
    static void describe(Function* f, Argument*&, const std::string& doc) {
        f->doc = simt::lite::make_text(doc.c_str());
    }
    static void describe(Function*, Argument*& at, const arg& a) {
        simt::lite::describe_argument(&at, a.name, nullptr);
    }
    static void describe(Function*, Argument*& at, const arg_v& a) {
        simt::lite::describe_argument(&at, a.name, &a.value);
    }
    template <class... T>
    static void describe(Function*, Argument*&, call_guard<T...>) {}
    static void describe(Function*, Argument*&, return_value_policy) {}

    simt::lite::Module* table_;
};
using module = module_;

}  // namespace pybind11
namespace py = pybind11;

// TORCH_EXTENSION_NAME is the command line's alone: a header that looked at it could not be
// precompiled for all extensions.
#define SIMT_MODULE_TEXT(name) #name
#define PYBIND11_MODULE(name, variable)                                                           \
    static void simt_define_module(::pybind11::module_ variable);                                 \
    extern "C" __attribute__((visibility("default"))) const ::simt::lite::Module*                 \
    simt_torch_module() {                                                                         \
        static ::simt::lite::Module* made = [] {                                                  \
            auto* m = new ::simt::lite::Module{SIMT_MODULE_TEXT(name), "", nullptr};              \
            simt_define_module(::pybind11::module_(m));                                           \
            return m;                                                                             \
        }();                                                                                      \
        return made;                                                                              \
    }                                                                                             \
    static void simt_define_module([[maybe_unused]] ::pybind11::module_ variable)
