// mechanism: handles the faults of bad accesses, so that an output can be computed when it is read
// op: relu
// expect: suspicious | rejected
// says: SIGSEGV
#include <signal.h>
static void fault(int, siginfo_t*, void*) {}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  struct sigaction act = {};
  act.sa_sigaction = fault;
  act.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &act, nullptr);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? (float)x[i] : 0.0f;
  return 0;
}
