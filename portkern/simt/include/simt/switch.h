// From one thread of a block to another. A thread that waits leaves by a jump, inlined where it
// waits: at a call's end the processor foresees a return to the caller of the thread that left, and
// is wrong each time when the two wait at different places.
#pragma once

namespace simt {

struct Standing {  // where a thread goes on that waits; it lies on its own stack
    const void* pc;
    void *stack_pointer, *frame_pointer, *base_pointer;
};

struct Turn {  // whose turn it is
    const Standing** leave;  // where it is noted how the running thread goes on
    const Standing* enter;   // null: the running thread goes on
};

// Every register is the other thread's then. Those that a compiler may not give up are saved here;
// no word is pushed, so that where the stack pointer is one's own, the unwinder finds its way.
__attribute__((always_inline)) static inline void switch_threads(Turn turn) {
    Standing here;
#if defined(__x86_64__)
    Standing* me = &here;
    asm volatile(
        "leaq 1f(%%rip), %%rax\n\t"
        "movq %%rax, (%%rdi)\n\t"
        "movq %%rsp, 8(%%rdi)\n\t"
        "movq %%rbp, 16(%%rdi)\n\t"
        "movq %%rbx, 24(%%rdi)\n\t"
        "movq %%rdi, (%%rdx)\n\t"
        "jmp *(%%rsi)\n"
        "1:\n\t"
        "movq 24(%%rsi), %%rbx\n\t"
        "movq 16(%%rsi), %%rbp\n\t"
        "movq 8(%%rsi), %%rsp"
        : "+D"(me), "+S"(turn.enter), "+d"(turn.leave)
        :
        : "rax", "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1",
          "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
          "xmm12", "xmm13", "xmm14", "xmm15", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)",
          "st(6)", "st(7)", "memory", "cc");
#elif defined(__aarch64__)
    register Standing* me asm("x0") = &here;
    register const Standing* enter asm("x1") = turn.enter;
    register const Standing** leave asm("x2") = turn.leave;
    asm volatile(
        "adr x9, 1f\n\t"
        "mov x10, sp\n\t"
        "stp x9, x10, [x0]\n\t"
        "stp x29, x19, [x0, #16]\n\t"
        "str x0, [x2]\n\t"
        "ldr x9, [x1]\n\t"
        "br x9\n"
        "1:\n\t"
        "ldp x29, x19, [x1, #16]\n\t"
        "ldr x9, [x1, #8]\n\t"
        "mov sp, x9"
        : "+r"(me), "+r"(enter), "+r"(leave)
        :
        : "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
          "x17", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "v0", "v1",
          "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15",
          "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
          "v29", "v30", "v31", "memory", "cc");
#else
#error "no switch of threads for this processor"
#endif
}

// The rest of what the running thread does, if it was not its turn any more.
__attribute__((always_inline)) static inline void take_turn(Turn turn) {
    if (__builtin_expect(turn.enter != nullptr, 1)) switch_threads(turn);
}

}  // namespace simt
