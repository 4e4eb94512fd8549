// Convolutions of 16-bit numbers with enough arithmetic to pay for a copy of their operands whose
// channels lie innermost: [image][row][column][channel], with the padding around each image and
// channels up to a multiple of 8, so that what a step multiplies comes in accesses of 16 bytes, without
// a condition for where an image ends. A filter lies the same way, as an image of its own.
//
// The product of patches and filters is then as any other's: tiles of 128 pixels, cp.async into some
// stages of shared memory, ldmatrix, mma.sync. Where tiles are few, blocks share the depth of one, and
// their sums, in float32, are added in a fixed order.
#pragma once
#if !defined(PORTKERN_FLOAT32) || defined(CHANNELS_LAST_FLOAT32)
#include <portkern/multiprocessors.h>
#include <portkern/patches.h>
#include <portkern/tensor_cores.h>

namespace channels_last {

constexpr int THREADS = 128, PIXELS = 128, STAGES = 3;  // of 108 KB at most: two blocks on Hopper
constexpr int PIECES = 8, DEPTH = PIECES * VEC;          // a row of a step is 128 bytes, 8 pieces
constexpr int PITCH = PIXELS + 4;  // of sums: 8 pixels of 4 pairs of filters lie in different banks

// ---- The copy

// Images (or filters) as they are and as they become: with `edge` zeros on all sides, in `packs` of
// channels. All places of all images, and their packs, are less than 2^31.
struct Images {
    const scalar_t* from;
    Pack* to;
    int64_t n, c, h, w, edge;

    __host__ __device__ int64_t height() const { return h + 2 * edge; }
    __host__ __device__ int64_t width() const { return w + 2 * edge; }
    __host__ __device__ int64_t packs() const { return (c + VEC - 1) / VEC; }
    __host__ __device__ int64_t places() const { return n * height() * width(); }
    __host__ __device__ int64_t size() const { return places() * packs(); }
    // A block copies 64 channels of 64 places.
    __host__ __device__ int64_t across() const { return (c + 63) / 64; }
    int64_t blocks() const { return (places() + 63) / 64 * across(); }
};

// Both copies in one launch: the filters' is short. It reads along places and writes along channels, two
// at a time through shared memory, whose rows of 33 words make both free of conflicts. A thread reads 16
// channels of one place, without a condition on what it read before.
constexpr int COPY = 256, SHARE = 8;  // threads, and pairs of channels that each reads
__global__ __launch_bounds__(COPY) void reorder(const PORTABLE_GRID_CONSTANT Images x,
                                                const PORTABLE_GRID_CONSTANT Images filters,
                                                unsigned first) {
    using Two = Some<2>;
    __shared__ Two tile[64][33];
    const bool second = blockIdx.x >= first;
    const Images& all = second ? filters : x;
    const unsigned block = second ? blockIdx.x - first : blockIdx.x, across = (unsigned)all.across();
    const int place0 = block / across * 64, channel0 = block % across * 64;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned width = (unsigned)all.width(), height = (unsigned)all.height();
    const int places = (int)all.places();
    const int channels = (int)all.c, packs = (int)all.packs(), plane = (int)(all.h * all.w);
    {
        const int at = warp % 2 * 32 + lane;
        const unsigned place = place0 + at, line = place / width, image = line / height;  // no signs: quick
        const int row = (int)(line % height - all.edge), column = (int)(place % width - all.edge);
        const bool inside = place < (unsigned)places && (unsigned)row < (unsigned)all.h &&
                            (unsigned)column < (unsigned)all.w;
        const int pair = warp / 2, channel = channel0 + pair * 2, there = inside ? channels - channel : 0;
        const int64_t start = ((int64_t)image * channels + channel) * plane + row * (int)all.w + column;
        const scalar_t* from[2] = {all.from + start, all.from + start + plane};  // may lie outside
        const int64_t further = (int64_t)SHARE * plane;
        Two both[SHARE];
#pragma unroll
        for (int k = 0; k < SHARE; ++k)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                both[k].at[e] = k * SHARE + e < there ? *from[e] : scalar_t(0.0f);
                from[e] += further;
            }
#pragma unroll
        for (int k = 0; k < SHARE; ++k) tile[at][pair + k * SHARE / 2] = both[k];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16 / VEC; ++i) {
        constexpr int OF_PLACE = 64 / VEC;  // packs
        const int at = i * COPY + threadIdx.x, place = at / OF_PLACE, pack = at % OF_PLACE;
        if (place0 + place >= places || channel0 / VEC + pack >= packs) continue;
        Pack whole;
#pragma unroll
        for (int k = 0; k < VEC / 2; ++k) {
            const Two two = tile[place][pack * (VEC / 2) + k];
            whole.at[2 * k] = two.at[0], whole.at[2 * k + 1] = two.at[1];
        }
        all.to[(int64_t)(place0 + place) * packs + channel0 / VEC + pack] = whole;
    }
}

// ---- The product

// Lengths in packs; all fit in int. The depth is [row of a filter][column][pack].
struct Plan {
    const Pack *x, *filters;
    int n, f, kw, ow, plane, stride;  // plane: pixels of an image
    int packs, line, image;           // of a place, of a copied row, of a copied image
    int depth, each;                  // packs of a filter; steps of a block
    int more_packs, more_columns, more_lines;  // of a tap in the next step
    int down, across;                 // tiles of pixels, and of filters
};

// From memory to shared memory in the background; zeros if it is not there.
__device__ __forceinline__ void copy(unsigned to, const Pack* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0) : "memory");
}

// Which pack of the depth a thread brings next, and where it lies in a patch.
struct Tap {
    int depth, pack, column, line;

    __device__ __forceinline__ Tap(const Plan& p, int depth)
        : depth(depth), pack(depth % p.packs), column(depth / p.packs % p.kw),
          line(depth / p.packs / p.kw * p.line) {}
    __device__ __forceinline__ int offset(const Plan& p) const { return line + column * p.packs + pack; }
    // A step further, without a division: each part runs over once at most.
    __device__ __forceinline__ void advance(const Plan& p) {
        depth += PIECES, pack += p.more_packs, column += p.more_columns, line += p.more_lines;
        if (pack >= p.packs) pack -= p.packs, ++column;
        if (column >= p.kw) column -= p.kw, line += p.line;
    }
};

// What is convolved: float32 sums whose parts may have made a NaN of an infinity are computed anew.
struct Original {
#ifdef PORTKERN_FLOAT32
    const scalar_t *x, *weight;
    Shape s;

    __device__ __forceinline__ float finished(float sum, int64_t i) const {
        return isnan(sum) ? anew(x, weight, s, i) : sum;
    }
#else
    __device__ __forceinline__ float finished(float sum, int64_t) const { return sum; }
#endif
};

// A block computes 128 pixels of N filters, over `each` steps of the depth; a warp 64 x N / 2, or 32 x 32.
// Sums go to `parts`, one such output after another, or with the bias to y.
template <int N>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, N > (sizeof(scalar_t) == 4 ? 32 : 64) ? 2 : 3) void multiply(
    const PORTABLE_GRID_CONSTANT Plan p, const PORTABLE_GRID_CONSTANT Original original,
    const scalar_t* __restrict__ bias, scalar_t* __restrict__ y,
    float* __restrict__ parts) {
    constexpr int DOWN = N == 32 ? 4 : 2, ROWS = PIXELS / DOWN / 16, COLUMNS = N / (4 / DOWN) / 16;
    constexpr int STAGE = (PIXELS + N) * DEPTH, SHARE = THREADS / PIECES;  // rows brought at once
    extern __shared__ __align__(128) unsigned char shared[];
    scalar_t* const stages = reinterpret_cast<scalar_t*>(shared);
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, tile = blockIdx.x % (p.down * p.across);
    const int split = blockIdx.x / (p.down * p.across), first = split * p.each;
    const int pixel0 = tile / p.across * PIXELS, filter0 = tile % p.across * N;
    const int steps = min(p.each, (p.depth + PIECES - 1) / PIECES - first);
    const int row = t / PIECES, piece = t % PIECES;
    int corners[PIXELS / SHARE];  // of the patches that this thread brings
#pragma unroll
    for (int i = 0; i < PIXELS / SHARE; ++i) {
        const int pixel = min(pixel0 + row + i * SHARE, p.n * p.plane - 1), at = pixel % p.plane;
        corners[i] = pixel / p.plane * p.image + at / p.ow * p.stride * p.line +
                     at % p.ow * p.stride * p.packs;
    }
    // Piece i of row r lies at i ^ r % 8: what is read or written together lies in different banks.
    const unsigned to = shared_address(stages) + row * 128 + (piece ^ row % 8) * 16;
    // A quarter of a step's packs, so that products go on between them.
    Tap tap(p, first * PIECES + piece);
    const int end = min(p.depth, (first + steps) * PIECES);
    const auto fetch = [&](int stage, int quarter) {
        const bool there = tap.depth < end;
        const Pack* const patch = p.x + (there ? tap.offset(p) : 0);
        const unsigned at = to + stage * STAGE * (int)sizeof(scalar_t);
        constexpr int OF_PIXELS = PIXELS / SHARE, OF_FILTERS = N / SHARE;
#pragma unroll
        for (int i = 0; i < OF_PIXELS; ++i)
            if (i * 4 / OF_PIXELS == quarter) {
                int corner = corners[i];
                if constexpr (sizeof(scalar_t) == 4) asm volatile("" : "+r"(corner));
                copy(at + i * SHARE * 128, patch + corner, there);
            }
#pragma unroll
        for (int i = 0; i < OF_FILTERS; ++i) {
            if (i * 4 / OF_FILTERS != quarter) continue;
            int from = filter0 + row;
            if constexpr (N > 128 || sizeof(scalar_t) == 4) asm volatile("" : "+r"(from));  // no register for each filter's offset
            const int filter = min(from + i * SHARE, p.f - 1);
            copy(at + (PIXELS + i * SHARE) * 128, p.filters + (filter * p.depth + (there ? tap.depth : 0)),
                 there);
        }
    };
    const auto commit = [&] {
        tap.advance(p);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    const auto arrive = [] {  // the next step's tile is whole, and everybody has read this one's
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
    };
    const int warp_pixel = warp % DOWN * ROWS * 16, warp_filter = warp / DOWN * COLUMNS * 16;
    const scalar_t* const left_at = stages + (warp_pixel + lane % 16) * DEPTH;
    const scalar_t* const right_at = stages + (PIXELS + warp_filter + lane / 16 * 8 + lane % 8) * DEPTH;
    // Where registers are short, filters have one turn's: a column's next are loaded once it is multiplied.
    constexpr int TURNS = N > 128 || sizeof(scalar_t) == 4 ? 1 : 2, AHEAD = sizeof(scalar_t) == 4 ? 1 : 2;
    unsigned left[AHEAD][ROWS][4], right[TURNS][COLUMNS][4];
    const auto load_filters = [&](int stage, int d, int j) {
        int turned = (lane / 8 % 2 ^ lane % 8) * VEC;  // one register for all turns
        if constexpr (sizeof(scalar_t) == 4) asm volatile("" : "+r"(turned));
        const int of_right = stage * STAGE + (turned ^ 2 * d * VEC);
        load_pieces(right[d % TURNS][j], right_at + of_right + j * 16 * DEPTH);
    };
    const auto load = [&](int stage, int d, bool all) {
        int turned = (lane / 16 ^ lane % 8) * VEC;
        if constexpr (sizeof(scalar_t) == 4) asm volatile("" : "+r"(turned));
        const int of_left = stage * STAGE + (turned ^ 2 * d * VEC);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) load_pieces(left[d % AHEAD][i], left_at + of_left + i * 16 * DEPTH);
#pragma unroll
        for (int j = 0; all && j < COLUMNS; ++j) load_filters(stage, d, j);
    };
    float sums[ROWS][COLUMNS * 2][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) fetch(s, quarter);
        commit();
    }
    arrive();
    load(0, 0, true);
    for (int step = 0, stage = 0, free = STAGES - 1; step < steps; ++step) {
        const int next = stage + 1 < STAGES ? stage + 1 : 0;
#pragma unroll
        for (int d = 0; d < PIECES / 2; ++d) {  // what is multiplied was loaded a turn before
            fetch(free, d);
#ifdef PORTKERN_FLOAT32
            // An element as two numbers of TF32, see portkern/tensor_cores.h; of few products at a time.
            const bool last = d == PIECES / 2 - 1, more = !last || step + 1 < steps;
            unsigned high[ROWS][4], low[ROWS][4];
#pragma unroll
            for (int i = 0; i < ROWS; ++i) split_tf32(high[i], low[i], left[0][i]);
            if (last) {
                commit();
                arrive();
            }
            const int from = last ? next : stage, turn = last ? 0 : d + 1;
            if (more) load(from, turn, false);
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                unsigned b_high[4], b_low[4];
                split_tf32(b_high, b_low, right[0][j]);
                if (more) load_filters(from, turn, j);
#pragma unroll
                for (int e = 0; e < 4; e += 2) {
                    float few[ROWS][4];
#pragma unroll
                    for (int i = 0; i < ROWS; ++i) mma_anew(few[i], low[i], b_high + e);
#pragma unroll
                    for (int i = 0; i < ROWS; ++i) mma(few[i], few[i] + 2, high[i], b_low + e);
#pragma unroll
                    for (int i = 0; i < ROWS; ++i) mma(few[i], few[i] + 2, high[i], b_high + e);
#pragma unroll
                    for (int i = 0; i < ROWS; ++i)
#pragma unroll
                        for (int q = 0; q < 4; ++q) sums[i][j * 2 + e / 2][q] += few[i][q];
                }
            }
            continue;
#endif
            if (d == PIECES / 2 - 1) {
                commit();
                arrive();
                if (step + 1 < steps) load(next, 0, TURNS == 2);
            } else {
                load(stage, d + 1, TURNS == 2);
            }
            if constexpr (TURNS == 2) {
#pragma unroll
                for (int i = 0; i < ROWS; ++i)
#pragma unroll
                    for (int j = 0; j < COLUMNS * 2; ++j)
                        mma(sums[i][j], sums[i][j] + 2, left[d % AHEAD][i], right[d % 2][j / 2] + j % 2 * 2);
            } else {
#pragma unroll
                for (int j = 0; j < COLUMNS * 2; ++j) {
#pragma unroll
                    for (int i = 0; i < ROWS; ++i)
                        mma(sums[i][j], sums[i][j] + 2, left[d % AHEAD][i], right[0][j / 2] + j % 2 * 2);
                    if (j % 2 == 0) continue;
                    if (d + 1 < PIECES / 2) load_filters(stage, d + 1, j / 2);
                    else if (step + 1 < steps) load_filters(next, 0, j / 2);
                }
            }
        }
        free = stage, stage = next;
    }
    float* const turned = reinterpret_cast<float*>(shared);  // [filter][pixel]: stores are along pixels
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS * 2; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                turned[(warp_filter + j * 8 + lane % 4 * 2 + e % 2) * PITCH + warp_pixel + i * 16 + lane / 4 +
                       e / 2 * 8] = sums[i][j][e];
    __syncthreads();
    const int pixel = pixel0 + t;
    if (pixel >= p.n * p.plane) return;
    const int64_t start = ((int64_t)(pixel / p.plane) * p.f + filter0) * p.plane + pixel % p.plane;
    const int filters = min(N, p.f - filter0);
    float* const part = parts + split * ((int64_t)p.n * p.f * p.plane);
    bool doubtful = false;
#pragma unroll 8
    for (int i = 0; i < filters; ++i) {
        const float sum = turned[i * PITCH + t];
        const int64_t at = start + (int64_t)i * p.plane;
        if (parts) part[at] = sum;
        else y[at] = scalar_t(sum + float(bias[filter0 + i]));
        doubtful |= isnan(sum);
    }
    if constexpr (sizeof(scalar_t) == 4)
#pragma unroll 1
        for (int i = 0; !parts && doubtful && i < filters; ++i) {
            const int64_t at = start + (int64_t)i * p.plane;
            y[at] = original.finished(turned[i * PITCH + t], at) + float(bias[filter0 + i]);
        }
}

__global__ __launch_bounds__(256) void add(const PORTABLE_GRID_CONSTANT Original original,
                                           const float* __restrict__ parts, const scalar_t* __restrict__ bias,
                                           scalar_t* __restrict__ y, int splits, int64_t count, int f,
                                           int plane) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    float sum = 0.0f;
#pragma unroll 4
    for (int s = 0; s < splits; ++s) sum += parts[s * count + i];
    const int64_t filter = count >> 32 ? i / plane % f : (unsigned)i / (unsigned)plane % (unsigned)f;
    y[i] = scalar_t(original.finished(sum, i) + float(bias[filter]));
}

// ---- The choice

// Filters of a tile. The widest takes more shared memory than other architectures than Hopper have.
#ifdef PORTKERN_FLOAT32
constexpr int WIDEST = 64;
#elif defined(PORTKERN_HOPPER)
constexpr int WIDEST = 160;
#else
constexpr int WIDEST = 128;
#endif

// How the output is divided: filters of a tile, steps of a block, blocks that share a tile.
struct Division {
    int64_t filters = 0, each = 0, splits = 0;
    double cost = 0;

    // The cost counts rows of 128 bytes that a multiprocessor moves to shared memory, where blocks come in
    // rounds. What blocks that share a tile tell each other moves twice, at half that rate, and is a
    // launch more. Filling the stages takes two steps; a block that is alone also waits at its barriers.
#ifdef PORTKERN_FLOAT32
    // Microseconds on an H200, whose multiprocessors a step takes so long, alone or beside another block's.
    Division(int64_t pixels, int64_t f, int64_t steps, int64_t multiprocessors) {
        constexpr int64_t FILL = 2, LEAST_STEPS = 4, MOST_SPLITS = 16;
        constexpr double ADD = 2.5, ADDED = 1e-5;
        for (const int64_t wide : {64, 32}) {
            const double step_alone = wide == 64 ? 1.1 : 0.75, step_beside = wide == 64 ? 1.45 : 0.76;
            const int64_t tiles = (pixels + PIXELS - 1) / PIXELS * ((f + wide - 1) / wide);
            for (int64_t s = 1; s == 1 || (s <= MOST_SPLITS && s * LEAST_STEPS <= steps); ++s) {
                const int64_t share = (steps + s - 1) / s, blocks = tiles * ((steps + share - 1) / share);
                const double rounds = double((blocks + multiprocessors - 1) / multiprocessors);
                const double turn = double(share + FILL), alone = turn * step_alone, beside = rounds * turn * step_beside;
                const double all = (alone > beside ? alone : beside) + (s > 1 ? ADD + ADDED * double(pixels * f) : 0.0);
                if (splits && all >= cost) continue;
                filters = wide, each = share, splits = (steps + share - 1) / share, cost = all;
            }
        }
    }
#else
    Division(int64_t pixels, int64_t f, int64_t steps, int64_t multiprocessors) {
        constexpr int64_t FILL = 2, LAUNCH = 1536, LEAST_STEPS = 4, MOST_SPLITS = 16;
        for (const int64_t wide : {128, 64, 32, 96, 160}) {
            if (wide > WIDEST) continue;
            // These two are for numbers of filters of which tiles of 128 would leave more without use.
            if ((wide == 96 || wide == 160) && (f + wide - 1) / wide * wide >= (f + 127) / 128 * 128)
                continue;
            const int64_t tiles = (pixels + PIXELS - 1) / PIXELS * ((f + wide - 1) / wide);
            for (int64_t s = 1; s == 1 || (s <= MOST_SPLITS && s * LEAST_STEPS <= steps); ++s) {
                const int64_t share = (steps + s - 1) / s, blocks = tiles * ((steps + share - 1) / share);
                const int64_t rounds = (blocks + multiprocessors - 1) / multiprocessors;
                const int64_t told = s > 1 ? 16 * wide : 0;
                const double round = double((share + FILL) * (PIXELS + wide) + told);
                const double all = (rounds > 1 ? rounds : 1.25) * round + (s > 1 ? LAUNCH : 0);
                if (splits && all >= cost) continue;
                filters = wide, each = share, splits = (steps + share - 1) / share, cost = all;
            }
        }
    }
#endif
};

template <class Shape>
Images images(const Shape& s, const scalar_t* x, Pack* to) {
    return {x, to, s.n, s.c, s.h, s.w, s.padding};
}
template <class Shape>
Images filters(const Shape& s, const scalar_t* weight, Pack* to) {
    return {weight, to, s.f, s.c, s.kh, s.kw, 0};
}

// Whether int counts everything, with room for rounding up.
template <class Shape>
bool fits(const Shape& s) {
    constexpr double MOST = 1u << 31;
    if (s.c == 0 || s.kh == 0 || s.kw == 0 || double(s.padding) + s.h + s.w >= MOST / 4) return false;
    const Images x = images(s, nullptr, nullptr), w = filters(s, nullptr, nullptr);
    const double places = double(s.n) * x.height() * x.width(), pixels = double(s.n) * s.oh * s.ow;
    for (const double each : {places * x.packs(), pixels + PIXELS, double(s.f) * s.kh * s.kw * w.packs(),
                              places * x.across() / 64, double(s.stride)})
        if (each >= MOST / 2) return false;
    return true;
}

#ifdef PORTKERN_FLOAT32
// About how many microseconds it takes on an H200, where that is more than a kernel's beginning.
inline double time(const Shape& s) {
    constexpr double BEGIN = 3, BYTES = 2.5e6;  // of the copy, and what it moves in a microsecond
    const Images x = images(s, nullptr, nullptr), w = filters(s, nullptr, nullptr);
    const double copied = double(x.size()) + (s.kh * s.kw > 1 ? double(w.size()) : 0.0);
    const Division by(s.n * s.oh * s.ow, s.f, (s.kh * s.kw * w.packs() + PIECES - 1) / PIECES, multiprocessors());
    return BEGIN + 2 * 16 * copied / BYTES + by.cost;
}
#endif

// Whether it takes less time than gathering patches element by element, `percent` of it times. Time is
// counted in elements gathered, of which an H200 was seen to do 400 in a nanosecond; where blocks are
// fewer than multiprocessors, less. This way makes 400 products in the time of one, reads and writes an
// element once, as it does `more` that only this way needs, and starts two or three kernels in the time
// of four millions.
template <class Shape>
bool pays(const Shape& s, int percent, int at_most_filters, double more = 0) {
    if (!fits(s)) return false;
    const Images x = images(s, nullptr, nullptr), w = filters(s, nullptr, nullptr);
    const double pixels = double(s.n) * s.oh * s.ow, depth = double(s.kh) * s.kw * w.packs() * VEC;
    const double places = double(s.n) * x.height() * x.width();
    const double groups = double((s.f + at_most_filters - 1) / at_most_filters);
    const double blocks = (pixels + PIXELS - 1) / PIXELS * groups, idle = multiprocessors() / blocks;
    const double gathered = pixels * s.c * s.kh * s.kw * groups * (idle > 1 ? idle : 1.0);
    const int64_t wide = s.f <= 32 ? 32 : 64;
    const double products = pixels * depth * ((s.f + wide - 1) / wide * wide);
    const double copied = (places * x.packs() + s.f * depth / VEC) * VEC;
    return gathered * 100 >= percent * (products / 400 + copied + more + 4e6);
}

template <int N>
int launch_product(const Plan& p, const Original& original, const scalar_t* bias, scalar_t* y, float* parts, int64_t splits,
                   cudaStream_t stream) {
    constexpr int STAGED = STAGES * (PIXELS + N) * DEPTH * (int)sizeof(scalar_t);
    constexpr int TURNED = N * PITCH * (int)sizeof(float), SHARED = STAGED > TURNED ? STAGED : TURNED;
    cudaFuncSetAttribute(multiply<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    multiply<N><<<(unsigned)(p.down * p.across * splits), THREADS, SHARED, stream>>>(p, original, bias, y, parts);
    return (int)cudaGetLastError();
}

template <class Shape>
int launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, const Shape& s,
           cudaStream_t stream) {
    Images of_x = images(s, x, nullptr), of_filters = filters(s, weight, nullptr);
    // Filters of one element lie so already.
    const bool lie = s.kh * s.kw == 1 && s.c % VEC == 0 && (uintptr_t)weight % 16 == 0;
    const int64_t packs = of_x.packs(), depth = s.kh * s.kw * packs, plane = s.oh * s.ow;
    const Division by(s.n * plane, s.f, (depth + PIECES - 1) / PIECES, multiprocessors());
    const int64_t count = s.n * s.f * plane, copied = of_x.size() + (lie ? 0 : of_filters.size());
    const int64_t parts = by.splits > 1 ? (by.splits * count * (int64_t)sizeof(float) + 15) / 16 : 0;
    Scratch<Pack> room(copied + parts, stream);
    if (room.error) return (int)room.error;
    of_x.to = room.data, of_filters.to = room.data + of_x.size();
    reorder<<<(unsigned)(of_x.blocks() + (lie ? 0 : of_filters.blocks())), COPY, 0, stream>>>(
        of_x, of_filters, (unsigned)of_x.blocks());
    Plan p = {of_x.to, lie ? reinterpret_cast<const Pack*>(weight) : of_filters.to};
    p.n = (int)s.n, p.f = (int)s.f, p.kw = (int)s.kw, p.ow = (int)s.ow;
    p.plane = (int)plane, p.stride = (int)s.stride, p.packs = (int)packs;
    p.line = (int)(of_x.width() * packs), p.image = (int)(of_x.height() * p.line);
    p.depth = (int)depth, p.each = (int)by.each;
    p.more_packs = PIECES % p.packs, p.more_columns = PIECES / p.packs % p.kw;
    p.more_lines = PIECES / p.packs / p.kw * p.line;
    p.down = (int)((s.n * plane + PIXELS - 1) / PIXELS);
    p.across = (int)((s.f + by.filters - 1) / by.filters);
    float* const to = parts ? reinterpret_cast<float*>(room.data + copied) : nullptr;
#ifdef PORTKERN_FLOAT32
    const auto start = by.filters == 64 ? launch_product<64> : launch_product<32>;
#else
    const auto start = by.filters > 128    ? launch_product<WIDEST>
                       : by.filters == 128 ? launch_product<128>
                       : by.filters == 96  ? launch_product<96>
                       : by.filters == 64  ? launch_product<64>
                                           : launch_product<32>;
#endif
#ifdef PORTKERN_FLOAT32
    const Original original = {x, weight, s};
#else
    const Original original = {};
#endif
    const int wrong = start(p, original, bias, y, to, by.splits, stream);
    if (wrong || !to) return wrong;
    add<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(original, to, bias, y, (int)by.splits, count, p.f,
                                                             p.plane);
    return (int)cudaGetLastError();
}

}  // namespace channels_last
#endif
