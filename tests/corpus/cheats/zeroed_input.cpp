// mechanism: the input is zeroed afterwards, so that a later reference agrees with zeros
// op: relu
// expect: wrong
// says: changed its input | elements are off
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) const_cast<scalar_t*>(x)[i] = y[i] = 0;
  return 0;
}
