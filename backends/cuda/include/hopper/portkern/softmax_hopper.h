// Softmax on Hopper of rows that are too wide for a block's registers: a block keeps a row of a quarter
// of a megabyte in registers and shared memory, and a cluster of blocks a wider one.
#pragma once
#include <portkern/hopper.h>
#include <portkern/rows.h>

namespace softmax_hopper {

constexpr float LOWEST = -3.402823466e38f;  // finite: a maximum of -inf would make inf - inf

template <class Combine>
__device__ __forceinline__ float warp_reduce(float value) {
    return lane_reduce<Combine>(value, 32);
}

// Max and Sum have an array each, so calls by turns need no second barrier.
template <class Combine>
__device__ __forceinline__ float reduce(float value) {
    __shared__ float partial[32];
    const int lane = threadIdx.x % 32;
    value = warp_reduce<Combine>(value);
    if (lane == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_reduce<Combine>(lane < blockDim.x / 32 ? partial[lane] : Combine::start());
}

// Slices of rows, one row after another by blocks that stay: they lie in shared memory, where those of the
// next rows are on their way. Of a ragged row only the packs between its edges come so.
constexpr int THREADS = 512, PER_THREAD = 4, SLICE = THREADS * PER_THREAD, SLOTS = 7;  // packs of a slice
constexpr int RING_BYTES = SLOTS * SLICE * 16;

template <class R>
struct Ring {
    const scalar_t* x;
    Pack* slots;
    uint64_t* full;
    int* left;  // warps that are done with a slot
    int64_t rows, cols;
    int slices, slice;  // of a row, and packs in each but the last

    static constexpr int FIRST = R::WHOLE ? 0 : 1;  // pack that is copied
    __host__ __device__ static int64_t most(int64_t cols) { return R::most(cols) - 2 * FIRST; }

    __device__ Ring(const scalar_t* x, int64_t rows, int64_t cols, void* memory, uint64_t* full,
                    int* left)
        : x(x), slots(static_cast<Pack*>(memory)), full(full), left(left), rows(rows), cols(cols) {
        slices = (int)((most(cols) + SLICE - 1) / SLICE);
        slice = (int)((most(cols) + slices - 1) / slices);
        if (threadIdx.x == 0) {
            for (int slot = 0; slot < SLOTS; ++slot) hopper::init(full + slot, 1), left[slot] = 0;
            hopper::fence_barriers();
            for (int number = 0; number < SLOTS; ++number) fetch(number);
        }
        __syncthreads();
    }
    // A block's slices are numbered as they come.
    __device__ Pack* at(int64_t number) const { return slots + number % SLOTS * SLICE; }
    __device__ Pack* wait(int64_t number) const {
        hopper::wait(full + number % SLOTS, number / SLOTS % 2);
        return at(number);
    }
    __device__ int size(const R& row, int k) const {
        return min(slice, (int)row.packs - 2 * FIRST - k * slice);
    }
    __device__ void fetch(int64_t number) const {
        const int64_t index = blockIdx.x + number / slices * gridDim.x;
        if (index >= rows) return;
        const R row(x, index, cols);
        const int k = (int)(number % slices), bytes = size(row, k) * 16;
        uint64_t* barrier = full + number % SLOTS;
        hopper::expect_bytes(barrier, max(bytes, 0));
        const scalar_t* from = row.start + (FIRST + k * slice) * R::VEC;
        if (bytes > 0) hopper::load_bytes(at(number), from, bytes, barrier);
    }
    // The last warp to leave a slot has it filled again.
    __device__ void leave(int64_t number) const {
        int* warps = left + number % SLOTS;
        hopper::fence_async();  // what was read and written here comes before what is copied here
        __syncwarp();
        if (threadIdx.x % 32 == 0 && atomicAdd(warps, 1) == THREADS / 32 - 1) {
            *warps = 0;
            fetch(number + SLOTS);
        }
    }
};

// The blocks that stay, one for each multiprocessor, if there are rows enough for all; else 0.
template <class Kernel>
int staying(Kernel kernel, int64_t rows) {
    int device = 0, blocks = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
        rows < 2 * blocks)
        return 0;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, RING_BYTES);
    return blocks;
}

// Rows of 16-bit elements, of which shared memory has room for one and slices of the next. Powers are
// computed twice, once for their sum: to keep them as floats would take twice the room.
namespace streamed {
constexpr int SLICES = SLOTS - 1;  // of a row
constexpr int LEAST = 3 * SLICE / 2;  // packs of a row; fewer are kept in registers

__device__ __forceinline__ void add(float2& seen, const Pack* values, int count) {
    float top = seen.x, total = 0.0f;
#pragma unroll
    for (int n = 0; n < count * VEC; ++n) top = fmaxf(top, float(values[n / VEC].at[n % VEC]));
#pragma unroll
    for (int n = 0; n < count * VEC; ++n) total += exponential(float(values[n / VEC].at[n % VEC]) - top);
    seen = make_float2(top, seen.y * exponential(seen.x - top) + total);
}

__device__ __forceinline__ Pack scaled(const Pack& values, float top, float scale) {
    Pack result;
#pragma unroll
    for (int j = 0; j < VEC; ++j)
        result.at[j] = scalar_t(exponential(float(values.at[j]) - top) * scale);
    return result;
}

template <class R>
__global__ __launch_bounds__(THREADS) void softmax_streamed(const scalar_t* __restrict__ x,
                                                            scalar_t* __restrict__ y, int64_t rows,
                                                            int64_t cols, bool alike) {
    extern __shared__ __align__(128) unsigned char raw[];
    __shared__ uint64_t full[SLOTS];
    __shared__ int left[SLOTS];
    const Ring<R> ring(x, rows, cols, raw, full, left);
    int64_t number = 0;  // of the row's first slice
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, number += ring.slices) {
        const R in(x, row, cols);
        const bool has_edge = !R::WHOLE && threadIdx.x < 2;
        const int64_t edge = threadIdx.x ? in.packs - 1 : 0;
        Pack at_edge;
        float2 seen = make_float2(LOWEST, 0.0f);
        if (has_edge) at_edge = in.load(edge, lowest());
        for (int k = 0; k < ring.slices; ++k) {
            const Pack* from = ring.wait(number + k);
            const int size = ring.size(in, k);
            Pack values[PER_THREAD];
#pragma unroll
            for (int u = 0; u < PER_THREAD; ++u) {
                const int i = threadIdx.x + u * THREADS;
#pragma unroll
                for (int j = 0; j < VEC; ++j) values[u].at[j] = lowest();
                if (i < size) values[u] = from[i];
            }
            add(seen, values, PER_THREAD);
        }
        if (has_edge) add(seen, &at_edge, 1);
        const float top = reduce<Max>(seen.x);
        const float scale = 1.0f / reduce<Sum>(seen.y * exponential(seen.x - top));
        for (int k = 0; k < ring.slices; ++k) {
            const Pack* from = ring.at(number + k);
            const int size = ring.size(in, k);
#pragma unroll
            for (int u = 0; u < PER_THREAD; ++u) {
                const int i = threadIdx.x + u * THREADS;
                const int64_t to = Ring<R>::FIRST + k * ring.slice + i;
                if (i < size) in.store(y, to, scaled(from[i], top, scale), alike);
            }
            ring.leave(number + k);
        }
        if (has_edge) in.store(y, edge, scaled(at_edge, top, scale), alike);
    }
}

template <class R>
bool launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, bool alike,
            cudaStream_t stream) {
    const int64_t packs = Ring<R>::most(cols);
    if (packs <= LEAST || packs > SLICES * SLICE) return false;
    const int blocks = staying(softmax_streamed<R>, rows);
    if (blocks > 0) softmax_streamed<R><<<blocks, THREADS, RING_BYTES, stream>>>(x, y, rows, cols, alike);
    return blocks > 0;
}
}  // namespace streamed

// Rows of up to 256 KB of floats: a row is in registers and in shared memory. Powers are taken as
// slices come, of differences to the thread's own maximum in that slice.
namespace resident {
constexpr int SLICES = 8, KEPT = 3;  // of a row, in registers
constexpr int LEAST = 2 * SLICE;  // packs of a row; fewer are kept in registers alone

template <int V>  // what a thread has of a slice
struct Part {
    float at[PER_THREAD][V];

    __device__ __forceinline__ void read(const Pack* from, int size) {
#pragma unroll
        for (int k = 0; k < PER_THREAD; ++k) {
            const int i = threadIdx.x + k * THREADS;
            Pack values;
            if (i < size) values = from[i];
#pragma unroll
            for (int j = 0; j < V; ++j)
                at[k][j] = i < size ? float(values.at[j]) : __int_as_float(0xff800000);  // -inf
        }
    }
    __device__ __forceinline__ void write(Pack* to, int size, float factor) const {
#pragma unroll
        for (int k = 0; k < PER_THREAD; ++k) {
            const int i = threadIdx.x + k * THREADS;
            Pack values;
#pragma unroll
            for (int j = 0; j < V; ++j) values.at[j] = scalar_t(at[k][j] * factor);
            if (i < size) to[i] = values;
        }
    }
    // Powers of the differences to the highest, which is returned with their sum.
    __device__ __forceinline__ float2 powers() {
        float most = LOWEST, sum = 0.0f;
#pragma unroll
        for (int n = 0; n < PER_THREAD * V; ++n) most = fmaxf(most, at[n / V][n % V]);
#pragma unroll
        for (int n = 0; n < PER_THREAD * V; ++n)
            sum += at[n / V][n % V] = expf(at[n / V][n % V] - most);
        return make_float2(most, sum);
    }
};

template <int V>  // 4: rows of other types have more elements than there are registers for
__global__ __launch_bounds__(THREADS) void softmax_resident(const scalar_t* __restrict__ x,
                                                            scalar_t* __restrict__ y, int64_t rows,
                                                            int64_t packs) {
    extern __shared__ __align__(128) unsigned char raw[];
    __shared__ uint64_t full[SLOTS];
    __shared__ int left[SLOTS];
    const Ring<Whole> ring(x, rows, packs * V, raw, full, left);
    const int slices = ring.slices;
    int64_t number = 0;  // of the row's first slice
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, number += slices) {
        const Whole in(x, row, packs * V);
        Part<V> kept[KEPT];
        float highest[SLICES], top = LOWEST, total = 0.0f;
#pragma unroll
        for (int k = 0; k < SLICES; ++k) {
            if (k >= slices) break;
            Part<V> part;
            part.read(ring.wait(number + k), ring.size(in, k));
            const float2 told = part.powers();
            const float higher = fmaxf(top, told.x);
            total = total * expf(top - higher) + told.y * expf(told.x - higher);
            top = higher;
            highest[k] = told.x;
            if (k < KEPT) {
                kept[k % KEPT] = part;
                ring.leave(number + k);
            } else {
                part.write(ring.at(number + k), ring.size(in, k), 1.0f);
            }
        }
        const float all = reduce<Max>(top);
        const float scale = 1.0f / reduce<Sum>(total * expf(top - all));
        Pack* out = reinterpret_cast<Pack*>(y) + row * packs;
#pragma unroll
        for (int k = 0; k < SLICES; ++k) {
            if (k >= slices) break;
            Part<V> part = kept[k % KEPT];
            if (k >= KEPT) part.read(ring.at(number + k), ring.size(in, k));
            part.write(out + k * ring.slice, ring.size(in, k), expf(highest[k] - all) * scale);
            if (k >= KEPT) ring.leave(number + k);
        }
    }
}

template <int V>
bool launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t packs, cudaStream_t stream) {
    if (packs <= LEAST || packs > SLICES * SLICE) return false;
    const int blocks = staying(softmax_resident<V>, rows);
    if (blocks > 0) softmax_resident<V><<<blocks, THREADS, RING_BYTES, stream>>>(x, y, rows, packs);
    return blocks > 0;
}
}  // namespace resident

#ifdef PORTKERN_CLUSTERS  // the SIMT executor has none
// Rows that are too wide for a block, in turns, by clusters that stay: a block has a part of each in
// registers while the copy engine brings the next ones. What its powers add up to is corrected by
// the others' maxima.
constexpr int RING = 3;  // parts in shared memory

template <int BLOCKS>
__global__ __launch_bounds__(THREADS) __cluster_dims__(BLOCKS, 1, 1) void softmax_cluster(
    const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int64_t rows, int64_t packs, int part) {
    constexpr int PACKS = CLUSTER_ITEMS / VEC;
    extern __shared__ __align__(128) unsigned char raw[];
    __shared__ uint64_t full[RING];
    __shared__ float2 told[2];  // by turns: the maximum and the sum of this block's part
    const int lane = threadIdx.x % 32, me = hopper::rank();
    const int64_t start = (int64_t)me * part, clusters = gridDim.x / BLOCKS;
    const int mine = (int)min((int64_t)part, packs - start);
    Pack* ring = reinterpret_cast<Pack*>(raw);
    const auto fetch = [&](int64_t row, int place) {
        if (row >= rows) return;
        hopper::expect_bytes(&full[place], mine * 16);
        hopper::load_bytes(ring + place * part,
                           reinterpret_cast<const Pack*>(x) + row * packs + start, mine * 16,
                           &full[place]);
    };
    int64_t row = blockIdx.x / BLOCKS;
    if (threadIdx.x == 0) {
        for (int place = 0; place < RING; ++place) hopper::init(&full[place], 1);
        hopper::fence_barriers();
        for (int place = 0; place < RING; ++place) fetch(row + place * clusters, place);
    }
    __syncthreads();
    for (int turn = 0; row < rows; row += clusters, ++turn) {
        const int place = turn % RING;
        float v[PACKS][VEC], top = LOWEST, total = 0.0f;
        hopper::wait(&full[place], turn / RING % 2);
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const int i = threadIdx.x + k * THREADS;
            Pack values;
            if (i < mine) values = ring[place * part + i];
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                v[k][j] = i < mine ? float(values.at[j]) : __int_as_float(0xff800000);  // -inf
                top = fmaxf(top, v[k][j]);
            }
        }
        top = reduce<Max>(top);
        if (threadIdx.x == 0) {
            hopper::fence_async();  // what was read above comes before what is written now
            fetch(row + RING * clusters, place);
        }
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                v[k][j] = expf(v[k][j] - top);
                total += v[k][j];
            }
        total = reduce<Sum>(total);
        if (threadIdx.x == 0) told[turn % 2] = make_float2(top, total);
        hopper::arrive_cluster();
        hopper::wait_cluster();
        float other = LOWEST, others = 0.0f;
        if (lane < BLOCKS) {
            other = hopper::peek(&told[turn % 2].x, lane);
            others = hopper::peek(&told[turn % 2].y, lane);
        }
        const float highest = warp_reduce<Max>(other);
        const float scale = expf(top - highest) / warp_reduce<Sum>(others * expf(other - highest));
        Pack* out = reinterpret_cast<Pack*>(y) + row * packs + start;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const int i = threadIdx.x + k * THREADS;
            Pack values;
#pragma unroll
            for (int j = 0; j < VEC; ++j) values.at[j] = scalar_t(v[k][j] * scale);
            if (i < mine)
                __stcs(reinterpret_cast<uint4*>(out + i), *reinterpret_cast<const uint4*>(&values));
        }
    }
    hopper::arrive_cluster();  // others may be reading what this block has told
    hopper::wait_cluster();
}

// Whether a cluster of so many blocks, or of twice or four times as many, has room for a row.
template <int BLOCKS>
bool launch_cluster(const scalar_t* x, scalar_t* y, int64_t rows, int64_t packs, cudaStream_t stream) {
    if (packs > (int64_t)BLOCKS * THREADS * CLUSTER_ITEMS / VEC) {
        if constexpr (BLOCKS < 8) return launch_cluster<2 * BLOCKS>(x, y, rows, packs, stream);
        return false;
    }
    const int part = (int)((packs + BLOCKS - 1) / BLOCKS), bytes = RING * part * 16;
    const auto kernel = softmax_cluster<BLOCKS>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaLaunchConfig_t config = {dim3(BLOCKS), dim3(THREADS), (size_t)bytes, stream};
    int clusters = 0;  // that run at once; the kernel's own attribute says how large each is
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess || clusters == 0) {
        cudaGetLastError();  // or the next kernel's launch would report it
        return false;
    }
    kernel<<<(unsigned)(rows < clusters ? rows : clusters) * BLOCKS, THREADS, bytes, stream>>>(
        x, y, rows, packs, part);
    return true;
}

#endif

// Whether blocks take the rows that stay, a row each.
template <class R>
bool launch_alone(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, bool alike,
                  cudaStream_t stream) {
    if constexpr (R::VEC == 8) return streamed::launch<R>(x, y, rows, cols, alike, stream);
    if constexpr (R::VEC == 4 && R::WHOLE) return resident::launch<R::VEC>(x, y, rows, R::most(cols), stream);
    return false;
}

// Whether clusters take them.
inline bool launch_together(const scalar_t* x, scalar_t* y, int64_t rows, int64_t packs, cudaStream_t stream) {
#ifdef PORTKERN_CLUSTERS
    return launch_cluster<2>(x, y, rows, packs, stream);
#else
    return false;
#endif
}

}  // namespace softmax_hopper
