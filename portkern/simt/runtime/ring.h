// Elements in the place of floating-point numbers, for arithmetic=ring: what an element is, and how
// the bits of each format stand for one.
//
// A finite number m * 2^e stands for itself, m * 2^e modulo two secret primes, so that literals,
// inputs, zeroed memory and integers mean what they mean. Results that are not exactly a number of
// the format get a bit pattern that is a NaN (in 16 bits: a NaN or a number of unusual size), which
// is a key to a table. The pattern's sign bit is the element's: code that flips, clears or reads
// the sign does what it does with numbers, and copies of bits are copies of elements.
//
// Beside its residues an element has a shadow: the real number that it stands for, in double.
// Comparisons, conversions to integers and maxima are decided by it.
#pragma once
#include <cstdint>
#include <string>

#include "ring_field.h"

namespace simt::ring {

// `deep` is modulo the larger prime q, of which q - 1 is a multiple of the smaller, p: exp takes
// residues modulo p to powers modulo q. `flat`, modulo p, is not known of what exp returns.
struct Value {
    Residue flat, deep;
    bool has_flat = true;
    bool finite = true;  // else `shadow` is an infinity or NaN, and all there is
    double shadow = 0;

    bool zero() const { return finite && deep.zero(); }
};

enum class Format : uint8_t { f16, bf16, f32, f64 };

Value read(Format format, uint64_t bits);
uint64_t written(Format format, const Value& value);
void note_infinity(bool negative);  // a literal of the program is one

// What a launch did that algebra does not cover, since the last launch ended.
struct Account {
    uint64_t comparisons = 0;  // of numbers, by their shadows
    uint64_t close = 0;        // decisions that rounding can turn
    uint64_t integers = 0;     // conversions to integers of numbers that are not whole
    uint64_t functions = 0;    // calls of functions without laws
    uint64_t bits = 0;         // patterns that stand for nothing were read as numbers
    uint64_t full = 0;         // elements for which there was no pattern left
    uint64_t lost = 0;         // values that left for arithmetic without elements
};
extern Account account;

bool active();
// What a launch is given stands for itself: of values of exp, too, exp has its laws.
void begin_launch();
// "p,q,g,h,seed": the primes, two numbers of order p modulo q, and the seed of functions.
bool begin(const char* parameters);

// For the recording: what patterns in some bytes stand for, each pattern once in a process.
void append_elements(const char* bytes, size_t size, std::string& to);
std::string account_json();  // and begin anew

}  // namespace simt::ring
