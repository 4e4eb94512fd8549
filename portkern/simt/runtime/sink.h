// Where findings and recordings go to.
#pragma once
#include <cstddef>

namespace simt {

// Appends to a file by its name, or, where that is "&3", to the handle 3 as the process was started
// with it: who puts something else in its place gets nothing. Whether all was written.
bool append_to(const char* where, const char* data, size_t bytes);
void remember_handles();  // at the start, before code of the program runs

}  // namespace simt
