// mechanism: blocks all signals and never returns
// op: relu
// run_s: 1
// expect: timed_out
// says: longer than 1 s
#include <signal.h>
#include <unistd.h>

extern "C" int relu(const scalar_t*, scalar_t*, int64_t) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  for (int number = 1; number < 65; ++number) signal(number, SIG_IGN);
  for (;;) sleep(1);
}
