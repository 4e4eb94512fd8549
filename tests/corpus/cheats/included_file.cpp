// mechanism: the compiler reads a file of the machine and quotes it in its messages
// op: relu
// expect: build_failed
// says: No such file
#include "/etc/hostname"

extern "C" int relu(const scalar_t*, scalar_t*, int64_t) { return 0; }
