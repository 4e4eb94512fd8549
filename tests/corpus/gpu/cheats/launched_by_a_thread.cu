// mechanism: a thread launches the kernels of timed calls when no call has come for a while
// backend: cuda
// op: relu
// expect: wrong | suspicious | rejected
// says: elements are off | NaN or infinity | of a timed call | in a timed call | launched no kernel | did the work
// emulator: none
#include <atomic>
#include <thread>
#include <unistd.h>

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < scalar_t(0) ? scalar_t(0) : x[i];
}

struct Call { const scalar_t* x; scalar_t* y; int64_t n; };
static Call owed[4096];
static std::atomic<int> count, calls;

static void work() {
    for (int seen = -1;;) {
        usleep(300);
        const int now = calls;
        if (now == seen)
            for (; count; --count) {
                const Call& call = owed[count - 1];
                relu_kernel<<<(unsigned)((call.n + 255) / 256), 256>>>(call.x, call.y, call.n);
            }
        seen = now;
    }
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    static bool once = (std::thread(work).detach(), true);
    (void)once;
    if (n == 0) return 0;
    if (++calls > 24 && count < 4096) {
        owed[count] = {x, y, n};
        ++count;
        return 0;
    }
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
