// Dynamic counts of a checked run: hints for an author, never a time. Floating-point operations are
// not among them: callbacks come for memory only, and what a host's compiler has fused, folded or
// vectorised is not what a device executes.
#pragma once
#include "context.h"

namespace simt::counters {

void begin_launch(const Launch& launch);
void end_launch();
void end_block(Context& c);
void barrier(Context& c);
void access(Context& c, const char* at, unsigned bytes, bool writes, const void* pc);
// The running thread begins, or has ended, what the copy engine does.
void copy_engine(Context& c, bool moves);
// Not of atomic loads: a thread that waits makes any number of them.
void atomic(Context& c, const char* at, unsigned bytes, const void* pc);

}  // namespace simt::counters
