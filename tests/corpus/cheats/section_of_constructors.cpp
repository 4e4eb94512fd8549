// mechanism: has code run when it is loaded, by a section that assembly adds to
// op: relu
// expect: rejected
// says: G402
static int ran;
extern "C" void early() { ran = 1; }
asm(".pushsection .init_array,\"aw\"\n .quad early\n .popsection");
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? (float)x[i] : 0.0f;
  return 0;
}
