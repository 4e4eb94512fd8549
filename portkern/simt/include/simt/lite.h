// Tensors for extensions written against PyTorch: what the headers of torch/, ATen/ and c10/ share
// with the runtime, which does all work on elements. Nothing here throws or includes the library.
#pragma once
#include "core.h"

namespace simt::lite {

constexpr int most_dims = 16;

struct Storage {
    char* data;
    size_t bytes;
    int64_t references;
    bool device;  // the device's memory, else the host's
};

// Strides and offset in elements.
struct Impl {
    int64_t references;
    Storage* storage;
    int64_t offset;
    int dtype;  // c10::ScalarType's number
    int dims;
    int64_t sizes[most_dims], strides[most_dims];
};

SIMT_API Impl* make(int dtype, bool device, int dims, const int64_t* sizes);  // null: no memory
SIMT_API Impl* view(const Impl* of, int dims, const int64_t* sizes, const int64_t* strides,
                    int64_t offset);
SIMT_API void retain(Impl* t);
SIMT_API void release(Impl* t);

struct Number {  // a value of any element type
    double real;
    int64_t whole;
    bool is_real;
};
SIMT_API Number read(const Impl* t, int64_t index);  // index counts elements in order of the sizes
SIMT_API void write(Impl* t, int64_t index, Number value);
SIMT_API void fill(Impl* t, Number value);
SIMT_API void assign(Impl* to, const Impl* from);  // converts; repeats where sizes are 1

enum class Operation : uint8_t { add, subtract, multiply, divide };
// Element by element; `dtype` is the result's, the shapes have been broadcast to the same.
SIMT_API Impl* combine(Operation op, const Impl* a, const Impl* b, int dtype);

enum class Reduction : uint8_t { sum, mean, largest, smallest };
// Over dimension `dim` (-1: all); `where`, if asked for, gets the positions of the extremes.
SIMT_API Impl* reduce(Reduction how, const Impl* t, int dim, bool keep, int dtype, Impl** where);
// Positions along `dim` in sorted order; equal elements keep theirs.
SIMT_API Impl* sorted_order(const Impl* t, int dim, bool descending);
// Elements along `dim` at the positions in `index`, of index's shape; null: one is out of range.
SIMT_API Impl* gather(const Impl* t, int dim, const Impl* index);
SIMT_API Impl* select_rows(const Impl* t, int dim, const Impl* rows);

// ---- calls from outside

// A value that crosses the C interface. Whoever makes one of a tensor or a list gives a reference
// away with it; drop() takes it back.
struct Value {
    enum Kind : int64_t { none, boolean, integer, real, text, tensor, list };
    int64_t kind;
    int64_t count;  // of a list
    union {
        int64_t whole;
        double number;
        const char* characters;
        Impl* tensor_of;
        Value* items;
    };
};
SIMT_API Value* make_list(int64_t count);
SIMT_API const char* make_text(const char* text);
SIMT_API void drop(Value* value);

struct Argument {
    const char* name;  // empty: by position only
    const char* type;  // as in Python: "Tensor", "Optional[int]"
    bool has_default;
    Value standard;
    Argument* next;
};
struct Function {
    const char* name;
    const char* doc;
    const char* result;  // a type
    Argument* arguments;
    // Calls `code` and sets `result`; what it throws becomes the text that failed() is given.
    bool (*call)(void* code, const Value* arguments, Value* result);
    void* code;
    Function* next;
};
struct Module {
    const char* name;
    const char* doc;
    Function* functions;  // in order of their definition
};
SIMT_API void failed(const char* kind, const char* text);

}  // namespace simt::lite
