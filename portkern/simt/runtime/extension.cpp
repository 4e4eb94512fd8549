// The table of an extension's functions, and the C interface through which
// portkern/simt/torch_extension/bindings.py reads and calls them.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "memory.h"
#include "simt/api.h"
#include "simt/lite.h"

namespace simt::lite {

Value* make_list(int64_t count) {
    return static_cast<Value*>(calloc((size_t)count + 1, sizeof(Value)));
}

const char* make_text(const char* text) { return strdup(text); }

void drop(Value* value) {
    if (value->kind == Value::tensor) release(value->tensor_of);
    if (value->kind == Value::text) free(const_cast<char*>(value->characters));
    if (value->kind == Value::list) {
        for (int64_t i = 0; i < value->count; ++i) drop(&value->items[i]);
        free(value->items);
    }
    value->kind = Value::none;
}

const char* join(const char* a, const char* b, const char* c) {
    return make_text((std::string(a) + b + c).c_str());
}

Module* library_module() {
    static Module* module = new Module{"", "operators registered by name", nullptr};
    return module;
}

Function* add_function(Module* module, const char* name, const char* result) {
    Function** end = &module->functions;
    while (*end) end = &(*end)->next;
    return *end = new Function{name, "", result, nullptr, nullptr, nullptr, nullptr};
}

void add_argument(Function* function, const char* type) {
    Argument** end = &function->arguments;
    while (*end) end = &(*end)->next;
    *end = new Argument{"", type, false, {}, nullptr};
}

void describe_argument(Argument** at, const char* name, const Value* standard) {
    if (!*at) return;
    (*at)->name = name;
    (*at)->has_default = standard;
    if (standard) (*at)->standard = *standard;
    *at = (*at)->next;
}

namespace {

// Who does operations that are not here: 0 where it set the result, 1 where it called fail().
using Delegate = int (*)(const char* operation, const Value* arguments, int64_t count,
                         Value* result);
Delegate the_delegate = nullptr;

}  // namespace

bool delegate(const char* operation, const Value* arguments, int64_t count, Value* result) {
    if (the_delegate) return !the_delegate(operation, arguments, count, result);
    const std::string text = std::string(operation) + " is PyTorch's, and no script or test that "
                             "has imported it runs here";
    fail("NotImplementedError", text.c_str());
    return false;
}

namespace {

std::string quoted(const char* text) {
    std::string out = "\"";
    for (const char* p = text; *p; ++p) {
        char escaped[8];
        const unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\') (out += '\\') += (char)c;
        else if (c >= 0x20) out += (char)c;
        else if (snprintf(escaped, sizeof escaped, "\\u%04x", c) > 0) out += escaped;
    }
    return out + '"';
}

// Tensors have no spelling; a default that is one is left to the function itself.
std::string json(const Value& v) {
    char number[32];
    switch (v.kind) {
        case Value::boolean: return v.whole ? "true" : "false";
        case Value::integer: return std::to_string(v.whole);
        case Value::real:  // Python reads Infinity and NaN
            if (v.number != v.number) return "NaN";
            if (v.number - v.number != 0) return v.number > 0 ? "Infinity" : "-Infinity";
            snprintf(number, sizeof number, "%.17g", v.number);
            return strpbrk(number, ".e") ? number : std::string(number) + ".0";
        case Value::text: return quoted(v.characters);
        case Value::list: {
            std::string all;
            for (int64_t i = 0; i < v.count; ++i) all += (i ? ", " : "") + json(v.items[i]);
            return "[" + all + "]";
        }
        default: return "null";
    }
}

std::string json(const Argument& a) {
    std::string out = "{\"name\": " + quoted(a.name) + ", \"type\": " + quoted(a.type);
    if (a.has_default) out += ", \"default\": " + json(a.standard);
    return out + "}";
}

std::string json(const Function& f) {
    std::string arguments;
    for (const Argument* a = f.arguments; a; a = a->next)
        arguments += (a == f.arguments ? "" : ", ") + json(*a);
    return "{\"name\": " + quoted(f.name) + ", \"doc\": " + quoted(f.doc) + ", \"result\": " +
           quoted(f.result) + ", \"arguments\": [" + arguments + "]}";
}

}  // namespace
}  // namespace simt::lite

// ---- C: handles of tensors are Impl pointers with a reference each

#define SIMT_EXPORT extern "C" __attribute__((visibility("default")))
using namespace simt::lite;

// What the module offers, as JSON; valid until the next call.
SIMT_EXPORT const char* simt_torch_describe(const Module* module) {
    static std::string text;
    text = "{\"name\": " + quoted(module->name) + ", \"doc\": " + quoted(module->doc) +
           ", \"functions\": [";
    for (const Function* f = module->functions; f; f = f->next)
        text += (f == module->functions ? "" : ", ") + json(*f);
    text += "]}";
    return text.c_str();
}

SIMT_EXPORT const Module* simt_torch_library() { return library_module(); }

// Calls the index-th function. 0: `result` is set, to be dropped. 1: see simt_torch_error_…().
SIMT_EXPORT int simt_torch_call(const Module* module, int index, const Value* arguments,
                                Value* result) {
    const Function* f = module->functions;
    while (f && index-- > 0) f = f->next;
    *result = Value{};
    if (!f) return fail("IndexError", "no such function"), 1;
    return f->call(f->code, arguments, result) ? 0 : 1;
}
SIMT_EXPORT const char* simt_torch_error_kind() { return error().kind; }
SIMT_EXPORT const char* simt_torch_error_text() { return error().text; }
SIMT_EXPORT void simt_torch_drop(Value* value) { drop(value); }

SIMT_EXPORT void simt_torch_delegate(Delegate to) { the_delegate = to; }
SIMT_EXPORT void simt_torch_fail(const char* kind, const char* text) { fail(kind, text); }
SIMT_EXPORT int simt_torch_assign(Impl* to, const Impl* from) { return assign(to, from) ? 0 : 1; }
SIMT_EXPORT void simt_torch_retain(Impl* t) { retain(t); }
SIMT_EXPORT int simt_torch_is_device(const Impl* t) { return t->storage->device; }
SIMT_EXPORT Value* simt_torch_list(int64_t count) { return make_list(count); }
SIMT_EXPORT const char* simt_torch_text(const char* text) { return make_text(text); }

// What has the gradient of a tensor: kept until it is released.
SIMT_EXPORT Maker* simt_torch_maker(const Impl* t, int64_t* output) {
    Maker* maker = maker_of(t, output);
    if (maker) __atomic_add_fetch(&maker->references, 1, __ATOMIC_RELAXED);
    return maker;
}
SIMT_EXPORT void simt_torch_release_maker(Maker* maker) { release_maker(maker); }
SIMT_EXPORT int64_t simt_torch_maker_inputs(const Maker* maker) { return maker->inputs; }
SIMT_EXPORT const Impl* simt_torch_maker_input(const Maker* maker, int64_t i) {
    return maker->of[i];
}
SIMT_EXPORT int simt_torch_backward(const Maker* maker, const Value* gradients, int64_t count,
                                    Value* result) {
    *result = Value{};
    return maker->backward(maker->function, gradients, count, result) ? 0 : 1;
}

// Memory with a copy of `data`, as a tensor of bytes.
SIMT_EXPORT Impl* simt_torch_memory(int64_t bytes, const void* data, int device) {
    constexpr int byte = 0;
    Impl* memory = make(byte, device, 1, &bytes);
    if (!memory || !bytes) return memory;
    const simt::DeviceWork work;
    simt::admit(memory->storage->data, simt::Opened::write);
    memcpy(memory->storage->data, data, (size_t)bytes);
    simt::mark_written(memory->storage->data, (size_t)bytes);
    return memory;
}
// A tensor in it; strides and offset in elements.
SIMT_EXPORT Impl* simt_torch_view(const Impl* memory, int dtype, int dims, const int64_t* sizes,
                                  const int64_t* strides, int64_t offset) {
    Impl typed = *memory;
    typed.dtype = dtype;
    if (simt::Region* region = memory->storage->bytes ? simt::region_of(memory->storage->data) : nullptr)
        region->dtype = dtype;
    return as_strided(&typed, dims, sizes, strides, offset);
}
SIMT_EXPORT void simt_torch_release(Impl* t) { release(t); }
SIMT_EXPORT void simt_torch_info(const Impl* t, int64_t* dtype_dims_offset, int64_t* sizes,
                                 int64_t* strides, void** storage, int64_t* storage_bytes) {
    dtype_dims_offset[0] = t->dtype;
    dtype_dims_offset[1] = t->dims;
    dtype_dims_offset[2] = t->offset;
    for (int d = 0; d < t->dims; ++d) {
        sizes[d] = t->sizes[d];
        strides[d] = t->strides[d];
    }
    *storage = t->storage->data;
    *storage_bytes = (int64_t)t->storage->bytes;
}
// The error that launches and calls of the API have left, as cudaGetLastError: 0 if none.
SIMT_EXPORT int simt_torch_last_error() { return simt::api::last_error(); }
SIMT_EXPORT const char* simt_torch_error_name(int error) {
    return simt::api::cuda_error_name(error);
}
