// The fiber switch: saves what a function must preserve, changes stacks, restores. 4 to 8 ns, where
// ucontext's system call for the signal mask costs 170.
#pragma once

// Saves the running stack pointer in *save and continues where `load` was saved.
extern "C" void simt_switch(void** save, void* load);

namespace simt {

#if defined(__x86_64__)
constexpr int saved_words = 6;  // rbp, rbx, r12 to r15; the return address lies above them
#elif defined(__aarch64__)
constexpr int saved_words = 20;  // x19 to x30, d8 to d15
#else
#error "no fiber switch for this processor"
#endif

// A stack that enters `entry` when it is switched to; `top` is 16-byte aligned.
inline void* prepare_stack(char* top, void (*entry)()) {
    void** s = reinterpret_cast<void**>(top);
#if defined(__x86_64__)
    *--s = nullptr;  // keeps the alignment that the ABI has after a call
    *--s = reinterpret_cast<void*>(entry);
    for (int i = 0; i < saved_words; ++i) *--s = nullptr;
#else
    s -= saved_words;
    for (int i = 0; i < saved_words; ++i) s[i] = nullptr;
    s[11] = reinterpret_cast<void*>(entry);  // x30
#endif
    return s;
}

}  // namespace simt
