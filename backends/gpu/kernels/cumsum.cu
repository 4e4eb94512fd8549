// Inclusive running sum along the last axis. Who shares a row takes a pack each, warps scan by
// shuffles, and a carry joins the chunks, compensated so that long rows lose nothing to it; the next
// chunk loads meanwhile. Narrow rows are a few lanes' each. A few very wide rows are several blocks'
// each: these sum their parts first, and begin with what the parts before have. Narrow ragged rows are
// scanned in shared memory.
#include <portkern/rows.h>

#define BLOCK 256  // knob: 128 256 512
#define FILL 512  // knob: 256 512 1024 2048
#define FEW 131072  // knob: 0 32768 131072 524288

constexpr int64_t ROWS_FEW = 64, CHUNKS_MOST = 6;
constexpr int NARROW_MOST = 4;  // packs of a lane, one after the other

// A carry with the part of it that its own last digit cannot hold.
struct Carry {
    float sum = 0.0f, lost = 0.0f;

    __device__ __forceinline__ void add(float more) {
        const float whole = more + lost, next = sum + whole, part = next - sum;
        lost = (sum - (next - part)) + (whole - part);  // what the rounding of next has dropped
        if (lost != lost) lost = 0.0f;  // an infinity has nothing to lose
        sum = next;
    }
};

// Running sums of a pack's own elements, of which `last` is the sum.
template <class R>
struct Scanned {
    float at[R::VEC], last = 0.0f;

    __device__ __forceinline__ Scanned(bool inside, const typename R::Pack& values) {
#pragma unroll
        for (int j = 0; j < R::VEC; ++j) {
            last += inside ? float(values.at[j]) : 0.0f;
            at[j] = last;
        }
    }
    __device__ __forceinline__ typename R::Pack after(const Carry& carry, float before) const {
        typename R::Pack result;
#pragma unroll
        for (int j = 0; j < R::VEC; ++j)
            result.at[j] = scalar_t(carry.sum + (carry.lost + (before + at[j])));
        return result;
    }
};

// Over groups of `lanes` lanes: the sum up to this one and with it.
__device__ __forceinline__ float lane_scan(float value, int lane, int lanes) {
    for (int d = 1; d < lanes; d *= 2) {
        const float below = warp_shuffle_up(value, d);
        if (lane >= d) value += below;
    }
    return value;
}

template <class R>
__device__ __forceinline__ void scan_row(const R& in, bool there, scalar_t* y, int lanes, bool alike) {
    const int lane = threadIdx.x % lanes, last = threadIdx.x % WARP_SIZE - lane + lanes - 1;
    const int64_t packs = there ? in.packs : 0, most = R::most(in.length);
    Carry carry;
    for (int64_t first = 0; first < most; first += lanes) {  // all lanes of a warp as often
        const int64_t i = first + lane;
        typename R::Pack values;
        if (i < packs) values = in.load(i);
        const Scanned<R> scanned(i < packs, values);
        const float scan = lane_scan(scanned.last, lane, lanes);
        const float below = warp_shuffle_up(scan, 1);  // scan - last would round
        if (i < packs) in.store(y, i, scanned.after(carry, lane ? below : 0.0f), alike);
        carry.add(warp_shuffle(scan, last));
    }
}

template <class R>
__global__ __launch_bounds__(BLOCK) void cumsum_narrow(const scalar_t* __restrict__ x,
                                                       scalar_t* __restrict__ y, int64_t rows,
                                                       int64_t cols, int lanes, bool alike) {
    const int64_t row = group_of_lanes(lanes);
    scan_row(R(x, row < rows ? row : rows - 1, cols), row < rows, y, lanes, alike);
}

// Rows of at most LOCAL_MOST elements for each of a warp's lanes, which sum theirs, and then write over them
// what their sums come to after those of the lanes before: one scan in all. An odd number each, so that
// lanes meet in no bank.
__global__ __launch_bounds__(LOCAL_BLOCK) void cumsum_local(const scalar_t* __restrict__ x,
                                                            scalar_t* __restrict__ y, int64_t rows,
                                                            int cols, int lanes) {
    __shared__ Image<LOCAL_BLOCK, LOCAL_MOST / VEC> image;
    const BlockRows own(rows, blockDim.x / lanes);
    const int count = own.count * cols, row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    scalar_t* here = image.fetch(x, own.first * cols, count, rows * cols, blockDim.x);
    const int share = (cols + lanes - 1) / lanes | 1, first = row * cols + min(lane * share, cols);
    const int last = row < own.count ? row * cols + min((lane + 1) * share, cols) : first;
    float total = 0.0f;
#pragma unroll 4
    for (int i = first; i < last; ++i) total += float(here[i]);
    total = lane_scan(total, lane, lanes);
    const float below = warp_shuffle_up(total, 1), before = lane ? below : 0.0f;
    float sum = 0.0f;
#pragma unroll 4
    for (int i = first; i < last; ++i) here[i] = scalar_t(before + (sum += float(here[i])));
    image.store(y, here, own.first * cols, count, blockDim.x);
}

// Rows of at most SHORT_ROW elements.
__global__ __launch_bounds__(SHORT_BLOCK) void cumsum_short(const scalar_t* __restrict__ x,
                                                      scalar_t* __restrict__ y, int64_t rows, int cols) {
    __shared__ Image<SHORT_BLOCK, SHORT_ROW / VEC> image;
    const BlockRows own(rows, SHORT_BLOCK);
    const int count = own.count * cols;
    scalar_t* here = image.fetch(x, own.first * cols, count, rows * cols);
    if (threadIdx.x < own.count) {
        float sum = 0.0f;
        for (int i = threadIdx.x * cols; i < (threadIdx.x + 1) * cols; ++i)
            here[i] = scalar_t(sum += float(here[i]));
    }
    image.store(y, here, own.first * cols, count);
}

// `sums`: of the parts of all rows, null where a row has one.
template <class R>
__global__ __launch_bounds__(BLOCK) void cumsum_wide(const scalar_t* __restrict__ x,
                                                     scalar_t* __restrict__ y,
                                                     const double* sums, int64_t cols,
                                                     unsigned splits, bool alike) {
    // Two sets, used in turn: one barrier per chunk keeps writers off what others still read.
    __shared__ float totals[2][BLOCK / WARP_SIZE_MIN];
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    const int warps = blockDim.x / WARP_SIZE;
    const int64_t step = blockDim.x, row = blockIdx.x / splits, split = blockIdx.x % splits;
    const R in(x, row, cols);
    const Part part(in.packs, splits, split);
    Carry carry;
    typename R::Pack next;
    if (part.first + threadIdx.x < part.last) next = in.load(part.first + threadIdx.x);
    if (sums) {
        wait_for_previous();
        double before = 0.0;  // each warp's lanes ask for these together, and for what they scan first
        for (int64_t s = lane; s < split; s += WARP_SIZE) before += sums[row * splits + s];
        for (int d = WARP_SIZE / 2; d > 0; d /= 2) before += warp_shuffle_xor(before, d);
        carry.sum = (float)before;
        carry.lost = (float)(before - carry.sum);
        if (carry.lost != carry.lost) carry.lost = 0.0f;
    }
    int turn = 0;
    for (int64_t first = part.first; first < part.last; first += step, turn ^= 1) {
        const int64_t i = first + threadIdx.x;
        const Scanned<R> scanned(i < part.last, next);
        if (i + step < part.last) next = in.load(i + step);
        const float scan = lane_scan(scanned.last, lane, WARP_SIZE);
        float before = warp_shuffle_up(scan, 1);  // of this warp; scan - last would round
        if (lane == 0) before = 0.0f;
        if (lane == WARP_SIZE - 1) totals[turn][warp] = scan;
        __syncthreads();
        float chunk = 0.0f;  // its own sum is small, so it keeps digits that the carry would drop
        for (int w = 0; w < warps; ++w) {
            if (w == warp) before += chunk;
            chunk += totals[turn][w];
        }
        if (i < part.last) in.store(y, i, scanned.after(carry, before), alike);
        carry.add(chunk);
    }
}

template <class R>
__global__ __launch_bounds__(BLOCK) void sum_parts(const scalar_t* __restrict__ x,
                                                   double* __restrict__ sums, int64_t cols,
                                                   unsigned splits) {
    let_next_begin();
    __shared__ double warps[BLOCK / WARP_SIZE_MIN];
    const R in(x, blockIdx.x / splits, cols);
    const Part part(in.packs, splits, blockIdx.x % splits);
    double total = 0.0;
    for (int64_t i = part.first + threadIdx.x; i < part.last; i += BLOCK) {
        const Scanned<R> scanned(true, in.load(i));
        total += scanned.last;
    }
    for (int d = WARP_SIZE / 2; d > 0; d /= 2) total += warp_shuffle_xor(total, d);
    if (threadIdx.x % WARP_SIZE == 0) warps[threadIdx.x / WARP_SIZE] = total;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int w = 1; w < BLOCK / WARP_SIZE; ++w) total += warps[w];
    sums[blockIdx.x] = total;
}

// The least packs of a part. A chunk after another takes a block as long as memory takes to answer, a second
// kernel as long as a few chunks: rows of more are shared out down to a chunk each, where so few of them
// leave most of a GPU idle.
int64_t least_of_part(int64_t rows, int64_t packs) {
    return rows <= ROWS_FEW && packs >= CHUNKS_MOST * BLOCK ? BLOCK : 8 * BLOCK;
}

template <class R>
int launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    const int64_t packs = R::most(cols);
    const bool alike = lie_alike(x, y);
    if (Near<R>::LOCAL && cols <= LOCAL_MOST * WARP_SIZE_MIN) {
        if (are_short(rows, cols)) {
            cumsum_short<<<short_blocks(rows), SHORT_BLOCK, 0, stream>>>(x, y, rows, (int)cols);
            return (int)cudaGetLastError();
        }
        const int lanes = local_lanes(cols);
        const Blocks blocks = blocks_for(rows * lanes, LOCAL_BLOCK);
        cumsum_local<<<blocks.count, blocks.threads, 0, stream>>>(x, y, rows, (int)cols, lanes);
        return (int)cudaGetLastError();
    }
    if constexpr (!Near<R>::LOCAL)
        if (packs <= NARROW_MOST * WARP_SIZE_MIN && !are_spread(rows, packs, BLOCK)) {
            const int lanes = lanes_for(packs, 1);
            const Blocks blocks = blocks_for(rows * lanes, BLOCK);
            cumsum_narrow<R><<<blocks.count, blocks.threads, 0, stream>>>(x, y, rows, cols, lanes, alike);
            return (int)cudaGetLastError();
        }
    const int64_t splits = splits_for(rows, packs, FILL, least_of_part(rows, packs));
    Scratch<double> sums(splits > 1 ? rows * splits : 0, stream);
    if (sums.error) return (int)sums.error;
    const unsigned threads = threads_for(packs, 1, BLOCK);
    if (sums.data) {
        sum_parts<R><<<(unsigned)(rows * splits), BLOCK, 0, stream>>>(x, sums.data, cols, splits);
        launch_next(cumsum_wide<R>, rows * splits, threads, stream, x, y, sums.data, cols, splits, alike);
    } else {
        cumsum_wide<R><<<(unsigned)rows, threads, 0, stream>>>(x, y, nullptr, cols, 1, alike);
    }
    return (int)cudaGetLastError();
}

extern "C" int cumsum(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                      cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    if (is_single(rows, cols, BLOCK, FEW)) return launch<Single>(x, y, rows, cols, stream);
    return are_whole((uintptr_t)x | (uintptr_t)y, cols) ? launch<Whole>(x, y, rows, cols, stream)
                                                        : launch<Ragged>(x, y, rows, cols, stream);
}
