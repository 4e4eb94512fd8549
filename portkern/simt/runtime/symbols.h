// Names of functions and places of constants, from the tables of loaded modules.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace simt {

// The function that begins at `code`, without its namespaces, template arguments and parameters;
// empty when the module has no symbol for it.
std::string function_at(const void* code);
// Whether the module that `code` is in defines a function of that name.
bool defines_function(const void* code, const std::string& name);
// Whether __constant__ variables (see language.h) have any of these bytes.
bool is_constant(const void* p, size_t bytes);
// So many bytes of memory that are zero, to keep; null where there is none.
char* zeros(size_t bytes);
// A module's writable data, and what it held when it was loaded. __managed__ variables lie from
// one offset to another.
struct Data {
    char* begin;
    char* initial;
    size_t bytes;
    std::vector<std::pair<size_t, size_t>> managed;
};
// All of the module that `code` is in; none where its file cannot be read. It is the caller's to keep.
std::vector<Data> data_of(const void* code);
// Whether a variable of the device can be here: not on the host's stack or heap, nor a static one
// of a function.
bool can_be_symbol(const void* p);
// The last name in an expression that calls a kernel: "ns::scale<float, 4>" is "scale".
std::string last_name(const std::string& expression);

}  // namespace simt
