// What the files of the host API share, and what launch.cpp asks them.
#pragma once
#include "simt/core.h"

namespace simt {

// What launches have left behind is taken note of. The code that every call fails with after a
// fault in a kernel; 0 if there was none.
int enter();
int finish(int error);  // keeps an error for last_error()

// Whether the device may touch [p, p + bytes); reports SX101, SX104, SX105 or SX112 if not. `what`
// completes "16 bytes ..., from offset 0 of buffer #3".
bool on_device(const void* p, size_t bytes, const char* what, Site at);

// The bytes of dynamic shared memory that cudaFuncSetAttribute has granted to the kernel of a launch;
// 0 without a grant.
size_t granted_dynamic(const Call& call);
// The most that such a launch may have.
size_t dynamic_limit(const Call& call);
// The error that a launch fails with before anything else is looked at: the context has met a
// fault, or the stream does not exist. 0: go on.
int refuse_launch(const Shape& shape);
// A limit of the device as it was set, or as it is from the start. False: there is no such limit.
bool find_limit(size_t* value, int limit);

namespace api {
// What `stream` is given from here on belongs to the capture that `origin` is part of, if any.
void join_capture(const void* stream, const void* origin);
}  // namespace api

}  // namespace simt
