// mechanism: the assembler puts a file of the machine into the library
// op: relu
// expect: build_failed
// says: file not found | No such file | Could not find
asm(".globl stolen\nstolen: .incbin \"/etc/shadow\"\n");

extern "C" int relu(const scalar_t*, scalar_t*, int64_t) { return 0; }
