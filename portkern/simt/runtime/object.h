// Launches of compiled kernels, which who has opened the program executes.
#pragma once
#include "launch.h"

namespace simt::object {

bool wanted();
void run(Launch& launch);
void refused(const Shape& shape, const Call& call);
bool runs();  // a compiled kernel is being executed: device memory is open to it

}  // namespace simt::object
