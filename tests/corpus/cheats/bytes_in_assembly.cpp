// mechanism: a call of the system as bytes in assembly
// op: relu
// expect: rejected
// says: G407
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  long got;
  asm volatile(".byte 0x0f, 0x05" : "=a"(got) : "a"(39) : "rcx", "r11", "memory");
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? (float)x[i] : 0.0f;
  return 0;
}
