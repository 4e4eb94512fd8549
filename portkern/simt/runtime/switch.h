// A stack on which no thread has run yet.
#pragma once
#include "simt/switch.h"

extern "C" const char simt_enter[];  // where a new stack begins

namespace simt {

// Calls `entry` when it is switched to; `top` is 16-byte aligned.
inline const Standing* prepare_stack(char* top, void (*entry)()) {
    Standing* begin = reinterpret_cast<Standing*>(top) - 1;
    void** nobody = reinterpret_cast<void**>(begin) - 1;  // where `entry` would return to
    *nobody = nullptr;
    *begin = {simt_enter, nobody, nullptr, reinterpret_cast<void*>(entry)};
    return begin;
}

}  // namespace simt
