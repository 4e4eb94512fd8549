// mechanism: templates that take the compiler's memory and time
// op: relu
// build_s: 3
// expect: timed_out | build_failed
// says: longer than 3 s | memory
template <int depth, unsigned long id>
struct tree {
  static constexpr long size = tree<depth - 1, 2 * id>::size + tree<depth - 1, 2 * id + 1>::size;
};
template <unsigned long id>
struct tree<0, id> {
  static constexpr long size = 1;
};

extern "C" int relu(const scalar_t*, scalar_t*, int64_t) { return tree<40, 1>::size; }
