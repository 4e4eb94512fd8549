// The device's heap: what malloc(), free(), new and delete of kernels work on.
#pragma once
#include <cstddef>
#include <cstdint>

namespace simt {

struct Region;

struct HeapBlock {
    char* begin;
    size_t bytes;    // as asked for
    size_t extent;   // with the red zone behind it
    const void* pc;  // of the call that allocated it
    bool freed;
};

// Null when the heap has no room, as on a device. `pc` is the place of the call.
void* heap_allocate(size_t bytes, size_t align, const void* pc);
// Frees what heap_allocate returned; reports SX113 for anything else, and SX110 for what was
// written behind the block.
void heap_release(void* p, const void* pc);
bool in_heap(const void* p);
// The block that `p` points into or behind; null before the first.
const HeapBlock* heap_block(const void* p);
void describe_heap(const void* p, char* text, size_t size);
bool heap_used();    // its size is then fixed
void drop_heap();    // notes what was never freed (SX117), and forgets all of it

}  // namespace simt
