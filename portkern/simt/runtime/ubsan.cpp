// The callbacks of -fsanitize=undefined in checked builds: arithmetic that a GPU would carry out
// without a word, and indices outside arrays whose size the compiler knows.
#include <cstdio>
#include <mutex>
#include <unordered_map>

#include "context.h"
#include "memory.h"

namespace simt {
namespace {

// Layouts that GCC and clang share (compiler-rt's ubsan_handlers.h).
struct Location {
    const char* file;
    uint32_t line, column;
};
struct Type {
    uint16_t kind, info;  // kind 0: integer, bits = 1 << (info >> 1), sign = info & 1
    char name[1];
};
struct Overflow {
    Location at;
    const Type* type;
};
struct Shift {
    Location at;
    const Type* left;
    const Type* right;
};
struct Bounds {
    Location at;
    const Type* array;
    const Type* index;
};
struct Mismatch {
    Location at;
    const Type* type;
    unsigned char log_alignment, kind;
};

Site site_of(const Location& at) {
    static std::mutex lock;
    static auto* sites = new std::unordered_map<const Location*, Site>;
    std::lock_guard<std::mutex> guard(lock);
    Site& site = (*sites)[&at];
    if (!site) site = new Origin{at.file, "", at.line, at.column};
    return site;
}

// An operand: its value when it fits a register, else a pointer to it.
long long value_of(const Type* type, uintptr_t operand) {
    const unsigned bits = 1u << (type->info >> 1);
    if (bits > 64) return 0;
    if (bits == 64) return (long long)operand;
    const unsigned unused = 64 - bits;
    return type->info & 1 ? (long long)(operand << unused) >> unused
                          : (long long)(operand << unused >> unused);
}

void overflow(const Overflow& d, const char* operation, uintptr_t left, uintptr_t right) {
    if (!block) return;
    finding(501, site_of(d.at), "%lld %s %lld does not fit %s", value_of(d.type, left), operation,
            value_of(d.type, right), d.type->name);
}

}  // namespace
}  // namespace simt

#define SIMT_CALLBACK extern "C" __attribute__((visibility("default")))
using simt::Overflow;

SIMT_CALLBACK void __ubsan_handle_add_overflow(const Overflow* d, uintptr_t l, uintptr_t r) {
    simt::overflow(*d, "+", l, r);
}
SIMT_CALLBACK void __ubsan_handle_sub_overflow(const Overflow* d, uintptr_t l, uintptr_t r) {
    simt::overflow(*d, "-", l, r);
}
SIMT_CALLBACK void __ubsan_handle_mul_overflow(const Overflow* d, uintptr_t l, uintptr_t r) {
    simt::overflow(*d, "*", l, r);
}
SIMT_CALLBACK void __ubsan_handle_negate_overflow(const Overflow* d, uintptr_t old) {
    if (simt::block)
        simt::finding(501, simt::site_of(d->at), "-%lld does not fit %s",
                      simt::value_of(d->type, old), d->type->name);
}
SIMT_CALLBACK void __ubsan_handle_divrem_overflow(const Overflow* d, uintptr_t l, uintptr_t r) {
    if (!simt::block) return;
    const long long divisor = d->type->kind == 0 ? simt::value_of(d->type, r) : 1;
    if (divisor == 0)
        simt::fatal(503, simt::site_of(d->at), "%lld divided by zero", simt::value_of(d->type, l));
    if (d->type->kind == 0) simt::overflow(*d, "/", l, r);
}
SIMT_CALLBACK void __ubsan_handle_shift_out_of_bounds(const simt::Shift* d, uintptr_t l,
                                                      uintptr_t r) {
    if (!simt::block) return;
    const unsigned bits = 1u << (d->left->info >> 1);
    const long long count = simt::value_of(d->right, r);
    if (count >= 0 && count < (long long)bits) return;  // only shifted-out bits
    simt::finding(502, simt::site_of(d->at), "a %s of %u bits shifted by %lld", d->left->name, bits,
                  count);
    (void)l;
}
SIMT_CALLBACK void __ubsan_handle_out_of_bounds(const simt::Bounds* d, uintptr_t index) {
    if (simt::block)
        simt::finding(103, simt::site_of(d->at), "index %lld of an array of type %s",
                      simt::value_of(d->index, index), d->array->name);
}
SIMT_CALLBACK void __ubsan_handle_type_mismatch_v1(const simt::Mismatch* d, uintptr_t pointer) {
    if (!simt::block) return;
    // Local arrays live in registers; a compiler aligns those it spills as they are accessed.
    const simt::Region* r = simt::region_of(reinterpret_cast<const void*>(pointer));
    if (r && r->where == simt::Where::stacks) return;
    const uintptr_t alignment = uintptr_t{1} << d->log_alignment;
    if (pointer % alignment)
        simt::finding(106, simt::site_of(d->at), "access to %s at an address %u bytes off its "
                      "alignment of %u", d->type->name, (unsigned)(pointer % alignment),
                      (unsigned)alignment);
}
SIMT_CALLBACK void __ubsan_handle_pointer_overflow(const simt::Location*, uintptr_t, uintptr_t) {}
SIMT_CALLBACK void __ubsan_handle_alignment_assumption(const simt::Location*, uintptr_t, uintptr_t,
                                                       uintptr_t) {}
