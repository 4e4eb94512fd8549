// mechanism: nothing is written, the buffer may hold the last answer
// op: softmax
// expect: wrong
// says: elements are off | NaN or infinity
extern "C" int softmax(const scalar_t*, scalar_t*, int64_t, int64_t) { return 0; }
