// What launches did to device memory, written to a file, so that two runs can be compared.
#pragma once
#include "launch.h"

namespace simt::record {

bool wanted();
void begin_launch(const Launch& launch);  // before close_buffers()
void end_launch(const Launch& launch);    // before close_buffers(); the kernel's writes are open
void mark(const char* name);              // a line of its own, which stands for no launch
void refused(const Shape& shape, const Call& call);

}  // namespace simt::record
