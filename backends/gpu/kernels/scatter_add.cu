// x with rows of src added. A block owns some rows of a band of columns, which nobody else writes.
// It looks through the whole index for what they get and puts that in order, so that sums are the
// same every time; then each warp takes a row, its sum in float32 registers.
#include <portkern/portable.h>

#define BLOCK 512  // knob: 256 512 1024
#define BLOCKS 256  // knob: 128 256 512 1024 (hip: 512)
#define ITEMS 16  // knob: 16 32

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access
constexpr int LIST = 1024;  // additions that a block can note; if it has more, warps read the index
constexpr int SCAN = 8;  // indices in flight per thread

typedef unsigned long long Key;  // where in the index, then the row of those the block owns
constexpr int ROW_BITS = 24;

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

// Returns how many there are; the first LIST of them are in `list`, in the index's order.
__device__ int find(const int64_t* __restrict__ index, int64_t n, int64_t row0, int64_t tall,
                    Key* list) {
    __shared__ Key found[LIST];
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (int64_t first = threadIdx.x; first < n; first += BLOCK * SCAN) {
        int64_t row[SCAN];
#pragma unroll
        for (int u = 0; u < SCAN; ++u)
            row[u] = first + u * BLOCK < n ? index[first + u * BLOCK] - row0 : -1;
#pragma unroll
        for (int u = 0; u < SCAN; ++u) {
            if (row[u] < 0 || row[u] >= tall) continue;
            const int slot = atomicAdd(&count, 1);
            if (slot < LIST) found[slot] = (Key)(first + u * BLOCK) << ROW_BITS | row[u];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < min(count, LIST); i += BLOCK) {
        int place = 0;
        for (int j = 0; j < min(count, LIST); ++j) place += found[j] < found[i];
        list[place] = found[i];
    }
    __syncthreads();
    return count;
}

template <int V>
__global__ __launch_bounds__(BLOCK) void scatter_add_kernel(
    const scalar_t* __restrict__ x, const int64_t* __restrict__ index,
    const scalar_t* __restrict__ src, scalar_t* __restrict__ y, int64_t rows, int64_t dim,
    int64_t n, int64_t tall, int64_t bands) {
    constexpr int PACKS = ITEMS / V;  // a warp of 64 lanes needs half of them
    __shared__ Key list[LIST];
    const int64_t row0 = blockIdx.x / bands * tall;
    const int count = find(index, n, row0, tall, list), lane = threadIdx.x % WARP_SIZE;
    const int64_t length = count <= LIST ? count : n;
    const int64_t width = dim / V, across = (width + bands - 1) / bands;
    const int64_t column = blockIdx.x % bands * across + lane;  // and others, a warp apart
    const int columns = min(across, width - blockIdx.x % bands * across) - lane;
    const Pack<V>* terms = reinterpret_cast<const Pack<V>*>(src) + column;
    for (int row = threadIdx.x / WARP_SIZE; row < min(tall, rows - row0);
         row += BLOCK / WARP_SIZE) {
        const int64_t start = (row0 + row) * width + column;
        float total[PACKS][V];
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            Pack<V> values;
            if (k * WARP_SIZE < columns)
                values = reinterpret_cast<const Pack<V>*>(x)[start + k * WARP_SIZE];
#pragma unroll
            for (int j = 0; j < V; ++j) total[k][j] = float(values.at[j]);
        }
        for (int64_t first = 0; first < length; first += WARP_SIZE) {
            int64_t at = first + lane, owner = -1;
            if (at < length && count <= LIST) {
                owner = list[at] % (1 << ROW_BITS);
                at = list[at] >> ROW_BITS;
            } else if (at < length) {
                owner = index[at] - row0;
            }
            warp_mask_t hits = warp_ballot(owner == row);
            for (; hits; hits &= hits - 1) {
                const Pack<V>* from = terms + warp_shuffle(at, warp_first(hits)) * width;
                Pack<V> values[PACKS];
#pragma unroll
                for (int k = 0; k < PACKS; ++k)
                    if (k * WARP_SIZE < columns) values[k] = from[k * WARP_SIZE];
#pragma unroll
                for (int k = 0; k < PACKS; ++k)
#pragma unroll
                    for (int j = 0; j < V; ++j) total[k][j] += float(values[k].at[j]);
            }
        }
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            if (k * WARP_SIZE >= columns) continue;
            Pack<V> values;
#pragma unroll
            for (int j = 0; j < V; ++j) values.at[j] = scalar_t(total[k][j]);
            reinterpret_cast<Pack<V>*>(y)[start + k * WARP_SIZE] = values;
        }
    }
}

template <int V>
int launch(const scalar_t* x, const int64_t* index, const scalar_t* src, scalar_t* y, int64_t rows,
           int64_t dim, int64_t n, cudaStream_t stream) {
    const int64_t bands = (dim + 32 * ITEMS - 1) / (32 * ITEMS);
    const int64_t share = (rows * bands + BLOCKS - 1) / BLOCKS, most = (int64_t)1 << ROW_BITS;
    const int64_t tall = share < most ? share : most;
    const unsigned blocks = (unsigned)((rows + tall - 1) / tall * bands);
    scatter_add_kernel<V>
        <<<blocks, BLOCK, 0, stream>>>(x, index, src, y, rows, dim, n, tall, bands);
    return (int)cudaGetLastError();
}

extern "C" int scatter_add(const scalar_t* x, const int64_t* index, const scalar_t* src,
                           scalar_t* y, int64_t rows, int64_t dim, int64_t n, cudaStream_t stream) {
    if (rows == 0 || dim == 0) return 0;
    const bool aligned = ((uintptr_t)x | (uintptr_t)src | (uintptr_t)y) % 16 == 0;
    if (aligned && dim % VEC == 0) return launch<VEC>(x, index, src, y, rows, dim, n, stream);
    return launch<1>(x, index, src, y, rows, dim, n, stream);
}
