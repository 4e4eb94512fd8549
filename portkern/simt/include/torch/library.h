// Operators by name: TORCH_LIBRARY and its kin. What they register is called like bound functions,
// under "namespace::name".
#pragma once
#include <map>
#include <string>

#include "../pybind11/pybind11.h"
#include "types.h"

namespace c10 {
enum class DispatchKey : int8_t { CPU, CUDA, Autograd, CompositeImplicitAutograd, Meta };
}  // namespace c10

namespace torch {

// The schema is PyTorch's; what is called is known by its C++ type.
class Library {
  public:
    explicit Library(const char* space, bool called) : space_(space), called_(called) {}

    Library& def(const char* schema) {
        schemas()[named(schema)] = schema;
        return *this;
    }
    template <class F>
    Library& def(const char* schema, F&& function) {
        return bind(schema, std::forward<F>(function));
    }
    template <class F>
    Library& impl(const char* name, F&& function) {
        return called_ ? bind(name, std::forward<F>(function)) : *this;
    }
    template <class F>
    Library& impl(const char* name, c10::DispatchKey key, F&& function) {
        return key == c10::DispatchKey::CUDA ? bind(name, std::forward<F>(function)) : *this;
    }
    template <class F>
    Library& impl(const char* name, c10::DeviceType device, F&& function) {
        return device == c10::kCUDA ? bind(name, std::forward<F>(function)) : *this;
    }

  private:
    template <class F>
    Library& bind(const char* schema, F&& function) {
        const std::string name = named(schema);
        const auto known = schemas().find(name);
        pybind11::module_(simt::lite::library_module())
            .def(simt::lite::make_text(name.c_str()), std::forward<F>(function),
                 known != schemas().end() ? known->second : std::string(schema));
        return *this;
    }
    std::string named(const std::string& schema) const {
        return space_ + "::" + schema.substr(0, schema.find_first_of("(."));
    }
    // Of those that are defined before their functions are.
    static std::map<std::string, std::string>& schemas() {
        static std::map<std::string, std::string> all;
        return all;
    }
    std::string space_;
    bool called_;  // what is registered is for the device
};

namespace detail {
struct LibraryInit {
    LibraryInit(void (*define)(Library&), const char* space, const char* key) {
        const std::string_view on = key;
        Library library(space, on != "CPU" && on != "Meta" && on.substr(0, 8) != "Autograd");
        define(library);
    }
};
}  // namespace detail

// The way before TORCH_LIBRARY: an expression, whose names have their namespace.
class RegisterOperators {
  public:
    RegisterOperators() = default;
    template <class F>
    RegisterOperators(const char* schema, F&& function) { op(schema, std::forward<F>(function)); }
    template <class F>
    RegisterOperators& op(const std::string& schema, F&& function) & {
        define(schema, std::forward<F>(function));
        return *this;
    }
    template <class F>
    RegisterOperators&& op(const std::string& schema, F&& function) && {
        define(schema, std::forward<F>(function));
        return std::move(*this);
    }

  private:
    template <class F>
    static void define(const std::string& schema, F&& function) {
        const size_t end = schema.find("::");
        Library(schema.substr(0, end).c_str(), true)
            .def(schema.substr(end + 2).c_str(), std::forward<F>(function));
    }
};
namespace jit {
using RegisterOperators = torch::RegisterOperators;
}  // namespace jit

}  // namespace torch

#define SIMT_LIBRARY_TEXT(name) #name
#define SIMT_LIBRARY_JOINED(a, b) a##b
#define SIMT_LIBRARY_NAME(a, b) SIMT_LIBRARY_JOINED(a, b)
#define SIMT_LIBRARY(space, key, variable, number)                                                \
    static void SIMT_LIBRARY_NAME(simt_define_library_, number)(::torch::Library & variable);     \
    static const ::torch::detail::LibraryInit SIMT_LIBRARY_NAME(simt_library_, number)(           \
        SIMT_LIBRARY_NAME(simt_define_library_, number), SIMT_LIBRARY_TEXT(space), key);          \
    static void SIMT_LIBRARY_NAME(simt_define_library_,                                           \
                                  number)([[maybe_unused]] ::torch::Library & variable)
#define TORCH_LIBRARY(space, variable) SIMT_LIBRARY(space, "", variable, __COUNTER__)
#define TORCH_LIBRARY_FRAGMENT(space, variable) SIMT_LIBRARY(space, "", variable, __COUNTER__)
#define TORCH_LIBRARY_IMPL(space, key, variable) SIMT_LIBRARY(space, #key, variable, __COUNTER__)
#define TORCH_FN(function) (&function)
