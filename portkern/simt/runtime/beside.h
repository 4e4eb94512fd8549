// Host code that runs while a kernel does: memory of the device is open then, to all of the process.
#pragma once

namespace simt::beside {

// The calling thread is the runtime's, and takes no signals but those that the runtime handles.
void own_thread();
// Waits a moment for other threads to rest, and keeps signals away from this one.
void begin_launch();
// Why host code may have run since; null where none has.
const char* end_launch();

}  // namespace simt::beside
