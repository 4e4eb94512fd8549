// Tensors for extensions written against PyTorch: what the headers of torch/, ATen/ and c10/ share
// with the runtime. The runtime does the work on shapes and elements, so that those headers are
// little to compile. Nothing here throws: a null result has its reason in error().
#pragma once
#include "core.h"

namespace simt::lite {

constexpr int most_dims = 16;

struct Storage {
    char* data;
    size_t bytes;
    int64_t references;
    bool device;   // the device's memory, else the host's
    bool foreign;  // somebody else frees it
};

// Strides and offset in elements.
struct Impl {
    int64_t references;
    Storage* storage;
    int64_t offset;
    int dtype;  // c10::ScalarType's number
    int dims;
    int64_t sizes[most_dims], strides[most_dims];
    struct Maker* maker;  // of its gradient, as its output of this number
    int64_t output;
};
SIMT_API void retain(Impl* t);
SIMT_API void release(Impl* t);

// What the last null or false was for, on this OS thread; kind is Python's name of the exception.
struct Failure {
    const char* kind;
    const char* text;
};
SIMT_API Failure error();
SIMT_API void fail(const char* kind, const char* text);

SIMT_API const char* dtype_name(int dtype);  // "Float"
SIMT_API size_t dtype_size(int dtype);       // 0: unknown

// ---- tensors. A dimension d counts from the end when it is negative.

SIMT_API Impl* make(int dtype, bool device, int dims, const int64_t* sizes);
// Of memory that stays its owner's. No strides: the elements lie one after the other.
SIMT_API Impl* make_of(void* data, int dtype, bool device, int dims, const int64_t* sizes,
                       const int64_t* strides);
SIMT_API Impl* make_like(const Impl* t, int dtype, bool device);  // keeps the order of the strides
SIMT_API Impl* make_range(double from, double to, double step, int dtype, bool device);
SIMT_API bool is_contiguous(const Impl* t);

// Views share the elements.
SIMT_API Impl* as_strided(const Impl* t, int dims, const int64_t* sizes, const int64_t* strides,
                          int64_t offset);
SIMT_API Impl* reshape(const Impl* t, int dims, const int64_t* sizes, bool may_copy);
SIMT_API Impl* flatten(const Impl* t, int64_t from, int64_t to);
SIMT_API Impl* permute(const Impl* t, int dims, const int64_t* order);
SIMT_API Impl* transpose(const Impl* t, int64_t a, int64_t b);
SIMT_API Impl* unsqueeze(const Impl* t, int64_t d);
SIMT_API Impl* squeeze(const Impl* t, int64_t d);
SIMT_API Impl* squeeze_all(const Impl* t);
SIMT_API Impl* expand(const Impl* t, int dims, const int64_t* sizes);
SIMT_API Impl* select(const Impl* t, int64_t d, int64_t index);
SIMT_API Impl* slice(const Impl* t, int64_t d, int64_t from, int64_t to, int64_t step);

SIMT_API Impl* convert(const Impl* t, int dtype, bool device);  // a contiguous copy
SIMT_API bool assign(Impl* to, const Impl* from);               // converts and broadcasts

struct Number {  // a value of any element type
    double real;
    int64_t whole;
    bool is_real;
};
SIMT_API void fill(Impl* t, Number value);
SIMT_API Number read(const Impl* t, int64_t index);  // counts elements in the order of the sizes
SIMT_API void write(Impl* t, int64_t index, Number value);

enum class Operation : uint8_t { add, subtract, multiply, divide };
SIMT_API Impl* combine(Operation op, const Impl* a, const Impl* b);
// With a number in place of one operand, the left one if `reversed`.
SIMT_API Impl* combine_number(Operation op, const Impl* t, Number number, bool reversed);

enum class Reduction : uint8_t { sum, mean, largest, smallest };
SIMT_API Impl* reduce_all(Reduction how, const Impl* t, int dtype);
// `where`, if asked for, gets the positions of the extremes.
SIMT_API Impl* reduce(Reduction how, const Impl* t, int64_t d, bool keep, int dtype, Impl** where);
// Positions along d in sorted order; equal elements keep theirs.
SIMT_API Impl* sorted_order(const Impl* t, int64_t d, bool descending);
SIMT_API Impl* gather(const Impl* t, int64_t d, const Impl* index);
SIMT_API Impl* index_select(const Impl* t, int64_t d, const Impl* rows);
SIMT_API Impl* concatenate(const Impl* const* parts, int64_t count, int64_t d);

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

// Does an operation of PyTorch by its name in aten, in the process's own torch. False: see error().
SIMT_API bool delegate(const char* operation, const Value* arguments, int64_t count, Value* result);

// What calculates the gradients of some tensors: that of a C++ autograd function.
struct Maker {
    // The gradients of what was given to it, as a list, by those of what it made.
    bool (*backward)(void* function, const Value* gradients, int64_t count, Value* result);
    void (*end)(void* function);
    void* function;
    int64_t references;
    int64_t inputs;
    Impl** of;  // what was given to it: null where that was not a tensor
};
SIMT_API void made_by(Maker* maker, Impl* output, int64_t number);
SIMT_API Maker* maker_of(const Impl* t, int64_t* number);  // null: nothing is known
SIMT_API void release_maker(Maker* maker);

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
    // Calls `code` and sets `result`. False: it threw, see error().
    bool (*call)(void* code, const Value* arguments, Value* result);
    void* code;
    Function* next;
};
struct Module {
    const char* name;
    const char* doc;
    Function* functions;  // in the order of their definition
};
SIMT_API Module* library_module();  // of what TORCH_LIBRARY registers in all files
SIMT_API Function* add_function(Module* module, const char* name, const char* result);
SIMT_API void add_argument(Function* function, const char* type);
// Names the argument at *at, and goes on to the next.
SIMT_API void describe_argument(Argument** at, const char* name, const Value* standard);
// "Tuple[" "int, " "float" "]": text that lasts.
SIMT_API const char* join(const char* a, const char* b, const char* c);

}  // namespace simt::lite
