// mechanism: a call of the system in bytes of machine code, which no rule about names reads
// op: relu
// expect: rejected
// says: G407
__attribute__((section(".text#"))) static const unsigned char getpid_[] = {
    0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3,
};

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  ((long (*)())getpid_)();
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? (float)x[i] : 0.0f;
  return 0;
}
