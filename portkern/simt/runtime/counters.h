// Dynamic counts of a checked run: hints for an author, never a time.
#pragma once
#include "context.h"

namespace simt::counters {

void begin_launch(const Launch& launch);
void end_launch();
void end_block(Context& c);
void barrier(Context& c);
void access(Context& c, const char* at, unsigned bytes, bool writes, const void* pc);
void atomic(Context& c, const char* at, unsigned bytes, const void* pc);

}  // namespace simt::counters
