// mechanism: a kernel stays behind on a stream of its own and takes work through host memory
// backend: cuda
// op: relu
// run_s: 10
// expect: timed_out
// says: took longer than
// emulator: timed_out | crashed
struct Work {
    const scalar_t* x;
    scalar_t* y;
    int64_t n;
    unsigned number;
};

__global__ void serve(volatile Work* work, volatile unsigned* done) {
    for (unsigned next = 1;; ++next) {
        while (work->number != next) __threadfence_system();
        for (int64_t i = threadIdx.x; i < work->n; i += blockDim.x)
            work->y[i] = work->x[i] < 0.0f ? 0.0f : work->x[i];
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x == 0) *done = next;
    }
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    static Work* work;
    static volatile unsigned* done;
    if (!work) {
        cudaStream_t own;
        cudaMallocHost((void**)&work, sizeof(Work));
        cudaMallocHost((void**)&done, sizeof(unsigned));
        work->number = 0;
        *done = 0;
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
        serve<<<1, 1024, 0, own>>>(work, done);
    }
    work->x = x;
    work->y = y;
    work->n = n;
    __sync_synchronize();
    ++work->number;
    while (*done != work->number) {
    }
    return 0;
}
