// What the parts of the ring share: its two fields, and what makes values of numbers.
#pragma once
#include "ring.h"

namespace simt::ring {

struct State {
    bool active = false;
    Field flat, deep;
    uint64_t base = 0, turn = 0;  // of the flat prime's order, modulo the deep one
    uint64_t seed = 0;
};
extern State state;

Value number(double x);  // which stands for itself
Value negated(const Value& v);
uint64_t scattered(uint64_t x);  // all bits of it

}  // namespace simt::ring
