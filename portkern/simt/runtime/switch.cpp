// The unwinder ends here: nobody called.
#include "switch.h"

#if defined(__x86_64__)
asm(R"(
    .text
    .p2align 4
    .globl simt_enter
    .hidden simt_enter
    .type simt_enter,@function
simt_enter:
    .cfi_startproc
    .cfi_undefined %rip
    movq 16(%rsi), %rbp
    movq 8(%rsi), %rsp
    jmpq *24(%rsi)
    .cfi_endproc
    .size simt_enter, .-simt_enter
)");
#else
asm(R"(
    .text
    .p2align 4
    .globl simt_enter
    .hidden simt_enter
    .type simt_enter,%function
simt_enter:
    .cfi_startproc
    .cfi_undefined x30
    mov x29, xzr
    mov x30, xzr
    ldp x9, x10, [x1, #8]
    mov sp, x9
    ldr x10, [x1, #24]
    br x10
    .cfi_endproc
    .size simt_enter, .-simt_enter
)");
#endif
