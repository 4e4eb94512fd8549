// One launch of a kernel, and what the host API asks about launches.
#pragma once
#include <signal.h>

#include "simt/core.h"

namespace simt {

struct Launch {
    const Shape& shape;
    const Call& call;
    uint32_t layout;       // its number
    uint64_t blocks;
    size_t shared_top;     // where the next variable of shared memory goes
    size_t shared_used;    // bytes that count against the target's limit
    volatile bool failed;
    uint64_t events = 0;  // blocks that finished, and more let in; changed and read atomically
    uint64_t begun = 0;   // blocks; of one OS thread that runs them all
    bool alone = false;   // it does
};

// What cudaGetLastError says about launches; 0: none. The numbers are CUDA's for both languages
// (HIP's agree where they matter here).
enum LaunchError : int {
    launch_ok = 0, launch_invalid_value = 1, launch_invalid_configuration = 9,
    launch_illegal_address = 700, launch_out_of_resources = 701, launch_timeout = 702,
    launch_assert = 710, launch_too_many_blocks = 720, launch_failure = 719,
};
void watch_faults();      // from here on, faults come to the runtime first
bool is_own_handler(const struct sigaction& action);
const void* program_counter(const void* ucontext);
int take_launch_error();  // and forget it

// Who worked since the last time it was asked: a line for each name, its count first. A kernel that
// wrote to no buffer has done nothing.
void count_launch(const char* name);
const char* take_launches();
int peek_launch_error();
void set_launch_error(int error);

}  // namespace simt
