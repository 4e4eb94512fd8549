// Device memory: guarded, poisoned buffers that the checkers know to the byte.
#pragma once
#include <cstddef>
#include <cstdint>

namespace simt {

enum class Kind : uint8_t { device, managed, host };

struct Buffer {
    char* begin;
    size_t bytes;
    Kind kind;
};

// Begins at a multiple of 256, as cudaMalloc's do. Null when there is no memory; 0 bytes are fine.
void* allocate(size_t bytes, Kind kind);
bool release(void* p);                     // false: p is not the beginning of a live buffer
const Buffer* find_buffer(const void* p);  // the buffer p points into, or one past its end; or null
void mark_written(void* p, size_t bytes);  // by the host: a copy to the device, a memset
// Whether [p, p + bytes) lies within one buffer or in host memory; reports SX101 or SX105 if not.
bool check_range(const void* p, size_t bytes, bool write, const char* what);
size_t allocated_bytes();

// ---- regions: what a page of the address space is, for the checkers and the signal handler

enum class Opened : uint8_t { no, read, write };
enum class Where : uint8_t { unknown, buffer, freed, shared, stacks, image, heap };

struct Region {
    Where where;
    Buffer buffer;     // begin and bytes of any region
    char* mapped;      // with the guard pages
    size_t mapped_bytes;
    void* cells;       // check.cpp's, made when first needed
    size_t cells_bytes;
    uint8_t shift;     // one cell stands for 1 << shift bytes
    uint8_t* written;  // one bit per byte, for uninitialised reads; null: all written
    unsigned number;
    char* reserved;    // with the addresses around a buffer that are nobody else's
    size_t reserved_bytes;
    bool constants = false;  // an image's page that __constant__ variables lie in
    // access.cpp's: what is open to whom is under its lock.
    Opened open = Opened::no;
    Region* next_open = nullptr;
    bool device_wrote = false;  // in this call: a kernel, a memset, a copy of what a kernel wrote
    bool unread = false;        // written by the device since host code last looked
    size_t from_host = 0;       // bytes that host code has copied here in this call
    bool changed = false;       // open for writes since record.cpp last looked
    int dtype = -1;             // c10::ScalarType of the tensor that it is the storage of, if any
};

Region* region_of(const void* p);    // null: unknown
Region* region_near(const void* p);  // also for an address far before or behind a buffer
Region* add_region(Where where, char* begin, size_t bytes);
void drop_region(Region* r);
void each_buffer(void (*visit)(Region*));
void check_canaries();               // reports SX110 for writes into the slack behind buffers
void describe_address(const void* p, char* text, size_t size);

// ---- access.cpp: buffers are inaccessible while host code runs, as a GPU's memory is

void settle(Region* r);                   // a new buffer is filled: host code may not touch it
void unsettle(Region* r);                 // it is freed
void admit(Region* r, Opened access);     // until close_buffers()
void admit(const void* p, Opened access); // the same, where p is a buffer's
void close_buffers();
// A fault at `p`: true when it is a buffer's that was closed, and the access may be tried again.
// Reports SX114 when host code made it.
bool admit_fault(const void* p, const void* ucontext);
// What the host API is about to do, for the account below; it is admitted. A __device__ variable is
// not a buffer.
void note_copy(void* to, const void* from, size_t bytes, bool from_variable);
void note_fill(void* to);

// The account of one call, which begins here.
void begin_account();
size_t read_back_bytes();  // of device data that host code can have seen
bool take_launch_wrote();  // since it was last asked: whether a kernel wrote to a buffer

// Device memory is open until the end of the scope to what it faults on or admits.
struct DeviceWork {
    DeviceWork() = default;
    DeviceWork(const DeviceWork&) = delete;
    ~DeviceWork() { close_buffers(); }
};

struct Context;
struct Slots;
// Bytes of the stacks of one OS thread's blocks. Whether they are used or not, they count against
// RLIMIT_DATA: half of it is for buffers, for checkers, and for whoever else is in the process.
size_t most_stacks();
char* map_stacks(Context& c);  // null where there is no room
void unmap_stacks(Context& c);
char* map_shared();
void unmap_shared(char* p);
void begin_shared(Context& c);
void reset_slots(Context& c);
void free_slots(Slots* slots);

constexpr size_t shared_arena = 1 << 20;
constexpr size_t red_zone = 64;  // between variables of shared memory

}  // namespace simt
