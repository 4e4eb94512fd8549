// Maximum over square windows, in two steps. A block takes as many rows of outputs as TILE elements
// hold: the largest of each column of a row's windows, read in 16-byte accesses, goes to shared
// memory, and along that the outputs find theirs. Few outputs are a thread's each.
#include <portkern/portable.h>

#define BLOCK 256  // knob: 128 256 512
#define TILE 4096  // knob: 2048 4096 8192
#define FEW 524288  // knob: 0 131072 524288 2097152

constexpr int FILL = 1024;  // blocks
constexpr int AHEAD = 16;  // elements of a window of any length
constexpr int THREE = 3, RUN = 4;  // the usual window that overlaps; outputs of a thread in a column
constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

struct Shape {
    int64_t rows;  // of outputs, those of all planes together
    int h, w, oh, ow, window, stride, padding;
};

// A window that reaches into the padding sees the edge twice instead, which changes no maximum.
__device__ __forceinline__ int clamped(int i, int length) { return min(max(i, 0), length - 1); }

// A WINDOW other than 0 is the window's length, known to the compiler: all loads are in flight.
template <int V, int WINDOW>
__global__ __launch_bounds__(BLOCK) void pool_rows(const scalar_t* __restrict__ x,
                                                   scalar_t* __restrict__ y, Shape s, int tall) {
    __shared__ Pack<V> tops[TILE / V];
    const int window = WINDOW ? WINDOW : s.window, width = s.w / V;
    const int64_t row0 = (int64_t)blockIdx.x * tall, plane0 = row0 / s.oh;
    const int oy0 = row0 % s.oh, rows = min((int64_t)tall, s.rows - row0);
    for (int row = threadIdx.y; row < rows; row += blockDim.y) {
        const int oy = oy0 + row, top = oy % s.oh * s.stride - s.padding;
        const Pack<V>* plane =
            reinterpret_cast<const Pack<V>*>(x) + (plane0 + oy / s.oh) * s.h * width;
        for (int column = threadIdx.x; column < width; column += blockDim.x) {
            Pack<V> best = plane[clamped(top, s.h) * width + column];
#pragma unroll(WINDOW ? WINDOW : 1)
            for (int k = 1; k < window; ++k) {
                const Pack<V> other = plane[clamped(top + k, s.h) * width + column];
#pragma unroll
                for (int j = 0; j < V; ++j) best.at[j] = max_nan(best.at[j], other.at[j]);
            }
            tops[row * width + column] = best;
        }
    }
    __syncthreads();
    const scalar_t* lines = reinterpret_cast<const scalar_t*>(tops);
    for (int ox = threadIdx.x; ox < s.ow; ox += blockDim.x) {
        const int left = ox * s.stride - s.padding;
        for (int row = threadIdx.y; row < rows; row += blockDim.y) {
            scalar_t best = lines[row * s.w + clamped(left, s.w)];
#pragma unroll(WINDOW ? WINDOW : 1)
            for (int k = 1; k < window; ++k)
                best = max_nan(best, lines[row * s.w + clamped(left + k, s.w)]);
            y[(row0 + row) * s.ow + ox] = best;
        }
    }
}

// A thread per output looks at all of its window: of few outputs, of windows that share no element of
// rows without packs, and where rows are wider than TILE. Divisions are of 32 bits where that does.
template <int WINDOW, class Count>
__global__ __launch_bounds__(BLOCK) void pool_each(const scalar_t* __restrict__ x,
                                                   scalar_t* __restrict__ y, Shape s, Count outputs) {
    const Count i = (Count)blockIdx.x * BLOCK + threadIdx.x, row = i / (Count)s.ow;
    if (i >= outputs) return;
    const int window = s.window;
    const int top = (int)(row % (Count)s.oh) * s.stride - s.padding;
    const int left = (int)(i - row * s.ow) * s.stride - s.padding;
    const scalar_t* plane = x + (int64_t)(row / (Count)s.oh) * s.h * s.w;
    scalar_t best = plane[clamped(top, s.h) * s.w + clamped(left, s.w)];
    const auto at = [&](int r, int c) { return plane[clamped(top + r, s.h) * s.w + clamped(left + c, s.w)]; };
    if constexpr (WINDOW > 0) {
#pragma unroll
        for (int r = 0; r < WINDOW; ++r)
#pragma unroll
            for (int c = 0; c < WINDOW; ++c) best = max_nan(best, at(r, c));
    } else {
        // AHEAD loads in flight, across rows of the window; behind its last row that is read again.
        for (int r = 0, c = 0; r < window;) {
            scalar_t values[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) {
                values[u] = at(min(r, window - 1), c);
                if (++c == window) c = 0, ++r;
            }
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) best = max_nan(best, values[u]);
        }
    }
    y[i] = best;
}

// Of windows that share rows, the largest of each row is looked for once: a thread has RUN outputs, one
// below the other, of which all loads are in flight together. For rows without packs.
template <int STRIDE>
__global__ __launch_bounds__(BLOCK) void pool_columns(const scalar_t* __restrict__ x,
                                                      scalar_t* __restrict__ y, Shape s,
                                                      unsigned threads) {
    constexpr int ROWS = (RUN - 1) * STRIDE + THREE;
    const unsigned i = blockIdx.x * BLOCK + threadIdx.x, parts = (s.oh + RUN - 1) / RUN;
    if (i >= threads) return;
    const unsigned line = i / s.ow, ox = i - line * s.ow, plane = line / parts;
    const int oy = (int)(line - plane * parts) * RUN, top = oy * STRIDE - s.padding;
    const scalar_t* from = x + (int64_t)plane * s.h * s.w;
    int column[THREE];
#pragma unroll
    for (int c = 0; c < THREE; ++c) column[c] = clamped((int)ox * STRIDE - s.padding + c, s.w);
    scalar_t best[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const scalar_t* row = from + clamped(top + r, s.h) * s.w;
        best[r] = max_nan(max_nan(row[column[0]], row[column[1]]), row[column[2]]);
    }
    scalar_t* to = y + ((int64_t)plane * s.oh + oy) * s.ow + ox;
#pragma unroll
    for (int k = 0; k < RUN; ++k)
        if (oy + k < s.oh)
            to[(int64_t)k * s.ow] =
                max_nan(max_nan(best[k * STRIDE], best[k * STRIDE + 1]), best[k * STRIDE + 2]);
}

int launch_columns(const scalar_t* x, scalar_t* y, const Shape& s, cudaStream_t stream) {
    const unsigned threads = (unsigned)(s.rows / s.oh * ((s.oh + RUN - 1) / RUN) * s.ow);
    const auto kernel = s.stride == 1 ? pool_columns<1> : pool_columns<2>;
    kernel<<<(threads + BLOCK - 1) / BLOCK, BLOCK, 0, stream>>>(x, y, s, threads);
    return (int)cudaGetLastError();
}

template <class Count>
int launch_each(const scalar_t* x, scalar_t* y, const Shape& s, cudaStream_t stream) {
    const Count outputs = (Count)(s.rows * s.ow);
    auto kernel = pool_each<0, Count>;
    if (s.window == 2) kernel = pool_each<2, Count>;
    if (s.window == 3) kernel = pool_each<3, Count>;
    kernel<<<(unsigned)((s.rows * s.ow + BLOCK - 1) / BLOCK), BLOCK, 0, stream>>>(x, y, s, outputs);
    return (int)cudaGetLastError();
}

template <int V>
int launch(const scalar_t* x, scalar_t* y, const Shape& s, cudaStream_t stream) {
    unsigned across = 1;  // threads along a row
    while (across < BLOCK && (int)across < s.w / V) across *= 2;
    const dim3 block(across, BLOCK / across);
    const int64_t share = (s.rows + FILL - 1) / FILL, least = block.y;  // of each block
    const int64_t wanted = share > least ? share : least;
    int tall = TILE / s.w < wanted ? TILE / s.w : (int)wanted;
    if (tall > (int)block.y) tall -= tall % block.y;
    const unsigned blocks = (unsigned)((s.rows + tall - 1) / tall);
    auto kernel = pool_rows<V, 0>;
    if (s.window == 2) kernel = pool_rows<V, 2>;
    if (s.window == 3) kernel = pool_rows<V, 3>;
    kernel<<<blocks, block, 0, stream>>>(x, y, s, tall);
    return (int)cudaGetLastError();
}

extern "C" int maxpool2d(const scalar_t* x, scalar_t* y, int64_t n, int64_t c, int64_t h, int64_t w,
                         int64_t oh, int64_t ow, int64_t window, int64_t stride, int64_t padding,
                         cudaStream_t stream) {
    const Shape s = {n * c * oh, (int)h, (int)w, (int)oh, (int)ow, (int)window, (int)stride,
                     (int)padding};
    if (s.rows == 0 || ow == 0) return 0;
    if (h * w >= (int64_t)1 << 31) return (int)cudaErrorInvalidValue;  // 32 bits within a plane
    const bool aligned = (uintptr_t)x % 16 == 0 && w % VEC == 0;
    const bool small = s.rows * ow < (int64_t)1 << 31, apart = !aligned && small && window <= stride;
    if (s.rows * ow <= FEW || (FEW && apart)) return launch_each<unsigned>(x, y, s, stream);
    if (!aligned && small && window == THREE && stride < THREE) return launch_columns(x, y, s, stream);
    if (w > TILE) return launch_each<int64_t>(x, y, s, stream);
    return aligned ? launch<VEC>(x, y, s, stream) : launch<1>(x, y, s, stream);
}
