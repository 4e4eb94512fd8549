// Matrix products of a few rows or columns, or of little depth, alone or in a batch: every element of
// the large operand is read once, in packs, and used for all of them. Where that makes too few blocks,
// several share a sum. Accumulated in float32. B may have elements of its own type, and its columns a
// scale each.
#pragma once
#include <portkern/shared_depth.h>

namespace thin {

// More rows than these are worth a tile of the matrix units, or of registers.
constexpr int MOST_ROWS = sizeof(scalar_t) == 2 ? 4 : 8, MOST_COLUMNS = 4, MOST_DEPTH = 4;
constexpr int THREADS = 256, FILLING = 256, AHEAD = 4;
// Bytes of a small operand; those that memory brings at the least; tiles that nearly fill a GPU, and what
// one may take of its depth in turn.
constexpr int SMALL = 1 << 24, SECTOR = 32, MANY_TILES = 96, MOST_STEPS = 8;

template <class T>
struct Product {
    const scalar_t* a;
    const T* b;
    scalar_t* c;
    int64_t batch, m, n, k;
    const scalar_t* scale = nullptr;  // of each column

    __device__ __forceinline__ scalar_t scaled(float sum, int64_t column) const {
        return scalar_t(scale ? sum * float(scale[column]) : sum);
    }
};

// ---- Few rows: threads have columns of B, and meet with those that have other rows of it.

// Of `ROWS` rows of B from `row` on, which are all there: loads without conditions. `packed`: what is beside
// them in a row of A is whole packs.
template <int ROWS, int M, int V, class T>
__device__ __forceinline__ void add_rows(float (&total)[M][V], const Product<T>& all,
                                         const scalar_t* a, const Some<V, T>* b, int64_t width,
                                         int64_t row, bool packed) {
    Some<V, T> values[ROWS];
#pragma unroll
    for (int u = 0; u < ROWS; ++u) values[u] = b[(row + u) * width];
#pragma unroll
    for (int i = 0; i < M; ++i) {
        if (i >= all.m) continue;
        const scalar_t* from = a + i * all.k + row;
        alignas(16) scalar_t left[ROWS];
        if (M > 1 && ROWS % VEC == 0 && packed)
#pragma unroll
            for (int u = 0; u < ROWS; u += VEC)
                *reinterpret_cast<Pack*>(left + u) = *reinterpret_cast<const Pack*>(from + u);
        else
#pragma unroll
            for (int u = 0; u < ROWS; ++u) left[u] = from[u];
#pragma unroll
        for (int u = 0; u < ROWS; ++u)
#pragma unroll
            for (int j = 0; j < V; ++j) total[i][j] = fmaf(float(left[u]), float(values[u].at[j]), total[i][j]);
    }
}

// Neighbouring rows of B, of which a thread takes all: 8 or 16 accesses on their way.
template <int V, class T>
struct Deep {
    static constexpr int rows = V * sizeof(T) >= 4 ? 8 : 16;
};

// Bounded by its threads alone, a kernel would get too few registers; so would the others.
template <int M, int V, class T>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, 2) void few_rows(const Product<T> all, float* parts,
                                                            unsigned tiles, unsigned splits, bool packed) {
    let_next_begin();
    constexpr int DEEP = Deep<V, T>::rows;
    __shared__ float sums[M][V][THREADS + 1];  // of neighbours, and of neighbouring columns, in other banks
    const int wide = blockDim.x, tall = blockDim.y, x = threadIdx.x, y = threadIdx.y, me = y * wide + x;
    const int64_t batch = blockIdx.x / (tiles * splits), split = blockIdx.x / tiles % splits;
    const int64_t width = all.n / V, column = blockIdx.x % tiles * wide + x;
    const Part part((all.k + DEEP - 1) / DEEP, splits, split);
    const scalar_t* a = all.a + batch * all.m * all.k;
    const auto* b = reinterpret_cast<const Some<V, T>*>(all.b + batch * all.k * all.n) + column;
    float total[M][V] = {};
    for (int64_t group = part.first + y; column < width && group < part.last; group += tall) {
        const int64_t row = group * DEEP;
        if (row + DEEP <= all.k) add_rows<DEEP>(total, all, a, b, width, row, packed);
        else {
            int64_t rest = row;
            for (; rest + 4 <= all.k; rest += 4) add_rows<4>(total, all, a, b, width, rest, packed);
            for (; rest < all.k; ++rest) add_rows<1>(total, all, a, b, width, rest, packed);
        }
    }
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
        for (int j = 0; j < V; ++j) sums[i][j][me] = total[i][j];
    int left = tall;  // rows of sums
    for (; left > 8; left /= 2) {
        __syncthreads();
        if (y >= left / 2) continue;  // it still meets the others at the next barrier
        for (int i = 0; i < min(M, (int)all.m); ++i)
#pragma unroll
            for (int j = 0; j < V; ++j) sums[i][j][me] += sums[i][j][me + left / 2 * wide];
    }
    __syncthreads();
    // Now a thread has elements of C, whoever summed them.
    const int columns = wide * V, count = (int)all.m * columns, threads = wide * tall;
    const int64_t column0 = (int64_t)(blockIdx.x % tiles) * columns;
    for (int first = me; first < count; first += AHEAD * threads) {
        float one[AHEAD] = {}, factor[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int own = first + u * threads, at = own % columns;
            if (own >= count || column0 + at >= all.n) continue;
            factor[u] = all.scale && !parts ? float(all.scale[column0 + at]) : 1.0f;
            for (int r = 0; r < left; ++r) one[u] += sums[own / columns][at % V][r * wide + at / V];
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const int own = first + u * threads, at = own % columns;
            if (own >= count || column0 + at >= all.n) continue;
            const int64_t place = (batch * all.m + own / columns) * all.n + column0 + at;
            if (parts) parts[split * all.batch * all.m * all.n + place] = one[u];
            else all.c[place] = scalar_t(one[u] * factor[u]);
        }
    }
}

template <int M, int V, class T>
int launch_rows(const Product<T>& all, cudaStream_t stream) {
    if constexpr (M < MOST_ROWS)
        if (all.m > M) return launch_rows<2 * M, V>(all, stream);
    constexpr int DEEP = Deep<V, T>::rows;
    const auto tiles_of = [&](int wide) { return (all.n / V + wide - 1) / wide; };
    const auto step_of = [&](int wide) { return (int64_t)THREADS / wide * DEEP; };  // rows of B at once
    int wide = 32;  // fewer where there are fewer columns: the others take rows instead; more where k is small
    while (wide > 1 && wide / 2 * V >= all.n) wide /= 2;
    while (wide >= 32 && wide < THREADS && step_of(wide) >= 2 * all.k &&
           all.batch * tiles_of(2 * wide) >= FILLING)
        wide *= 2;
    // To read a small B takes less than a second kernel does: its tiles are narrow enough for one to have all
    // of their depth, if that is not too much to take in turn.
    const bool small = all.batch * all.k * all.n * (int64_t)sizeof(T) <= SMALL;
    int narrow = wide;
    while (narrow * V * (int)sizeof(T) > SECTOR && all.batch * tiles_of(narrow) < MANY_TILES &&
           step_of(narrow) < all.k)
        narrow /= 2;
    const bool alone = small && all.k <= MOST_STEPS * step_of(narrow);
    if (alone) wide = narrow;
    const int64_t tiles = tiles_of(wide), count = all.batch * all.m * all.n;
    const int64_t splits = alone ? 1 : splits_for(all.batch * tiles, all.k, FILLING, 2 * step_of(wide));
    int tall = THREADS / wide;
    while (wide * tall > 32 && tall / 2 * DEEP >= all.k) tall /= 2;
    const dim3 block(wide, tall);
    const unsigned blocks = (unsigned)(all.batch * tiles * splits);
    return share_depth(splits, all.c, count, stream, [&](const Output& to) {
        few_rows<M, V><<<blocks, block, 0, stream>>>(all, to.parts, tiles, splits,
                                                     are_whole((uintptr_t)all.a, all.k));
    }, all.scale, all.n);
}

// ---- Few columns: lanes go along rows of A.

// ROWS of A that lie alike, `stride` apart, so that what is read of B serves all of them. A thread has
// registers for four sums.
template <int N>
constexpr int ALIKE = 4 / N;

// Rows in groups that a few lanes take each: of every `stride` rows, a power of two, one and those after it that
// lie alike. Divisions by what is mostly one would take as long as memory to answer.
struct Groups {
    int lanes, stride;
    int64_t count;  // in each product of the batch
    unsigned splits;
};

template <int N, class R, class T>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, R::WHOLE ? 4 : 3) void few_columns(const Product<T> all, float* parts,
                                                                               const Groups by) {
    let_next_begin();
    constexpr int ROWS = ALIKE<N>;
    const int lanes = by.lanes, stride = by.stride;
    const int64_t place_of = group_of_lanes(lanes), number = by.splits > 1 ? place_of / by.splits : place_of;
    const int64_t split = place_of - number * by.splits;
    const bool active = number < all.batch * by.count;
    const int64_t batch = active && all.batch > 1 ? number / by.count : 0;
    const int64_t group = active ? number - batch * by.count : 0, within = group & (stride - 1);
    const int64_t row0 = (group - within) * ROWS + within, left_rows = all.m - row0;
    const int lane = threadIdx.x & (lanes - 1);
    const R a(all.a, batch * all.m + (left_rows > 0 ? row0 : 0), all.k);
    const Part part(a.packs, by.splits, split);
    const T* b = all.b + batch * all.k * all.n;
    const auto is_there = [&](int u) { return active && u * stride < left_rows; };
    float total[ROWS][N] = {};
    const auto start_of = [&](int u) { return a.start + (is_there(u) ? u * stride * all.k : 0); };
    const auto add = [&](const auto& right, const auto& left) {
#pragma unroll
        for (int e = 0; e < N; ++e) {
            const float factor = right(e);
#pragma unroll
            for (int u = 0; u < ROWS; ++u) total[u][e] = fmaf(float(left(u)), factor, total[u][e]);
        }
    };
    const auto beside = [&](int64_t column) {
        return [=, at = b + column * all.n](int e) { return e < all.n ? float(at[e]) : 0.0f; };
    };
    const auto take_edge = [&](int64_t i) {
#pragma unroll 1
        for (int j = 0; j < VEC; ++j)
            if (a.has(i, j)) add(beside(a.column(i, j)), [&](int u) { return start_of(u)[i * VEC + j]; });
    };
    // Beside a pack of A lie N of B, if rows of both begin with one.
    const bool packed = R::WHOLE && all.n == N && (uintptr_t)all.b % (VEC * sizeof(T)) == 0;
    const int64_t first = R::WHOLE ? part.first : max(part.first, (int64_t)1);
    const int64_t last = R::WHOLE ? part.last : min(part.last, a.packs - 1);
    const auto each_pack = [&](const auto& take) {
#pragma unroll 1  // what more at once would take of registers, other blocks need
        for (int64_t i = first + lane; i < last; i += lanes) {
            Pack packs[ROWS];
#pragma unroll
            for (int u = 0; u < ROWS; ++u) packs[u] = reinterpret_cast<const Pack*>(start_of(u))[i];
            take(packs, i);
        }
    };
    if (packed) {
        each_pack([&](const Pack (&packs)[ROWS], int64_t i) {
            Some<VEC, T> right[N];
#pragma unroll
            for (int q = 0; q < N; ++q) right[q] = reinterpret_cast<const Some<VEC, T>*>(b)[i * N + q];
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                add([&](int e) { return float(right[(j * N + e) / VEC].at[(j * N + e) % VEC]); },
                    [&](int u) { return packs[u].at[j]; });
        });
    } else {
        each_pack([&](const Pack (&packs)[ROWS], int64_t i) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) add(beside(a.column(i, j)), [&](int u) { return packs[u].at[j]; });
        });
    }
    if (!R::WHOLE && lane == 0 && part.first == 0) take_edge(0);
    if (!R::WHOLE && lane == lanes - 1 && part.last == a.packs && a.packs > 1) take_edge(a.packs - 1);
#pragma unroll
    for (int u = 0; u < ROWS; ++u)
#pragma unroll
        for (int e = 0; e < N; ++e) {
            const float sum = lane_reduce<Sum>(total[u][e], lanes);
            if (lane > 0 || !is_there(u) || e >= all.n) continue;
            const int64_t place = (batch * all.m + row0 + u * stride) * all.n + e;
            if (parts) parts[split * all.batch * all.m * all.n + place] = sum;
            else all.c[place] = all.scaled(sum, e);
        }
}

template <int N, class R, class T>
int launch_columns(const Product<T>& all, cudaStream_t stream) {
    if constexpr (N < MOST_COLUMNS)
        if (all.n > N) return launch_columns<2 * N, R>(all, stream);
    int stride = 1;  // rows from one that lies alike to the next
    while (!R::WHOLE && stride * all.k % VEC) stride *= 2;
    const int64_t packs = R::most(all.k), together = (int64_t)stride * ALIKE<N>;
    const int64_t count = (all.m + together - 1) / together * stride, groups = all.batch * count;
    const int lanes = lanes_for(packs, 2);
    const int64_t splits = splits_for((groups * lanes + THREADS - 1) / THREADS, packs, 4 * FILLING, 4 * 32);
    const Blocks blocks = blocks_for(groups * splits * lanes, THREADS);
    return share_depth(splits, all.c, all.batch * all.m * all.n, stream, [&](const Output& to) {
        few_columns<N, R><<<blocks.count, blocks.threads, 0, stream>>>(
            all, to.parts, Groups{lanes, stride, count, (unsigned)splits});
    }, all.scale, all.n);
}

constexpr int SHORT = 256 / (int)sizeof(scalar_t);  // elements of a row of A that a thread takes alone

// A few rows of A, of no great length, are a block's each, an element at a time.
constexpr int LONE_ROWS = 2048, LONE_DEPTH = 2048, LONE_AHEAD = 4;
constexpr int64_t LONE_MOST = 1 << 19;  // elements of A

template <int N, class T>
__global__ __launch_bounds__(THREADS) void lone_rows(const Product<T> all) {
    __shared__ float partial[N][WARPS_MOST];
    const int k = (int)all.k, n = (int)all.n, step = blockDim.x;
    const scalar_t* a = all.a + (int64_t)blockIdx.x * k;
    const T* b = all.b + blockIdx.x / all.m * k * n;
    float total[N] = {};
    for (int first = threadIdx.x; first < k; first += LONE_AHEAD * step) {
        scalar_t left[LONE_AHEAD];
        T right[LONE_AHEAD][N];
#pragma unroll
        for (int u = 0; u < LONE_AHEAD; ++u) {
            const int at = first + u * step;
            if (at < k) left[u] = a[at];
#pragma unroll
            for (int e = 0; e < N; ++e)
                if (at < k && e < n) right[u][e] = b[at * n + e];
        }
#pragma unroll
        for (int u = 0; u < LONE_AHEAD; ++u)
#pragma unroll
            for (int e = 0; e < N; ++e)
                if (first + u * step < k && e < n)
                    total[e] = fmaf(float(left[u]), float(right[u][e]), total[e]);
    }
#pragma unroll
    for (int e = 0; e < N; ++e) {
        if (e >= n) break;
        const float sum = block_reduce<Sum>(total[e], partial[e]);
        if (threadIdx.x == 0) all.c[(int64_t)blockIdx.x * n + e] = all.scaled(sum, e);
    }
}

template <class T>
bool are_lone(const Product<T>& all) {
    const int64_t rows = all.batch * all.m;
    return all.n <= all.m && all.n <= MOST_COLUMNS && rows <= LONE_ROWS && all.k > SHORT &&
           all.k <= LONE_DEPTH && rows * all.k <= LONE_MOST;
}

template <class T>
int launch_lone(const Product<T>& all, cudaStream_t stream) {
    const unsigned threads = threads_for(all.k, 1, THREADS), rows = (unsigned)(all.batch * all.m);
    if (all.n == 1) lone_rows<1><<<rows, threads, 0, stream>>>(all);
    else lone_rows<MOST_COLUMNS><<<rows, threads, 0, stream>>>(all);
    return (int)cudaGetLastError();
}

// Rows of A that are short: a thread has one, of as many as its block brings in side by side.
constexpr int SHARE = 4;

template <int N, class T>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, 2) void short_rows(const Product<T> all, int together) {
    __shared__ Image<THREADS, SHARE> image;
    const int64_t rows = all.batch * all.m, first = (int64_t)blockIdx.x * together;
    const int count = (int)min((int64_t)together, rows - first), k = (int)all.k;
    const scalar_t* left = image.fetch(all.a, first * k, count * k, rows * k) + threadIdx.x * k;
    if (threadIdx.x >= count) return;
    const int64_t row = first + threadIdx.x;
    const T* right = all.b + row / all.m * k * all.n;
    float total[N] = {};
#pragma unroll 4
    for (int u = 0; u < k; ++u)
#pragma unroll
        for (int e = 0; e < N; ++e)
            if (e < all.n) total[e] = fmaf(float(left[u]), float(right[u * all.n + e]), total[e]);
#pragma unroll
    for (int e = 0; e < N; ++e)
        if (e < all.n) all.c[row * all.n + e] = all.scaled(total[e], e);
}

template <int N, class T>
int launch_short(const Product<T>& all, cudaStream_t stream) {
    if constexpr (N < MOST_COLUMNS)
        if (all.n > N) return launch_short<2 * N>(all, stream);
    const int together = min(THREADS, SHARE * THREADS * VEC / (int)all.k);
    const int64_t blocks = (all.batch * all.m + together - 1) / together;
    short_rows<N><<<(unsigned)blocks, THREADS, 0, stream>>>(all, together);
    return (int)cudaGetLastError();
}

// Longer ragged rows, too few in a product for some to lie alike: a block brings in some side by side, LINED
// lanes take each.
constexpr int LINED = 32;

template <int N, class T>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, 2) void lined_rows(const Product<T> all) {
    __shared__ Image<THREADS, SHARE> image;
    const int k = (int)all.k, n = (int)all.n, lane = threadIdx.x % LINED, me = threadIdx.x / LINED;
    const BlockRows own(all.batch * all.m, THREADS / LINED);
    const scalar_t* left = image.fetch(all.a, own.first * k, own.count * k, all.batch * all.m * k) + me * k;
    const bool there = me < own.count;
    const int64_t row = own.first + (there ? me : 0);
    const T* right = all.b + row / all.m * k * n;
    float total[N] = {};
#pragma unroll 4
    for (int u = lane; u < (there ? k : 0); u += LINED)
#pragma unroll
        for (int e = 0; e < N; ++e)
            if (e < n) total[e] = fmaf(float(left[u]), float(right[u * n + e]), total[e]);
#pragma unroll
    for (int e = 0; e < N; ++e) {
        const float sum = lane_reduce<Sum>(total[e], LINED);
        if (lane == 0 && there && e < n) all.c[row * n + e] = all.scaled(sum, e);
    }
}

template <int N, class T>
int launch_lined(const Product<T>& all, cudaStream_t stream) {
    if constexpr (N < MOST_COLUMNS)
        if (all.n > N) return launch_lined<2 * N>(all, stream);
    constexpr int EACH = THREADS / LINED;
    const int64_t rows = all.batch * all.m;
    lined_rows<N><<<(unsigned)((rows + EACH - 1) / EACH), THREADS, 0, stream>>>(all);
    return (int)cudaGetLastError();
}

template <class T>
bool are_lined(const Product<T>& all) {
    return all.batch > 1 && all.m <= 2 * VEC && all.k <= SHARE * VEC * LINED;  // what a block has room for
}

// ---- Little depth: what is written counts, and a thread has a pack of C, whatever rows that is of.

template <int K, class T>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, 2) void shallow(const Product<T> all, bool packed) {
    const int64_t count = all.batch * all.m * all.n;
    const int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * VEC;
    if (first >= count) return;
    const int64_t row = first / all.n;
    int64_t column = first % all.n, within = row % all.m;
    const scalar_t* a = all.a + row * all.k;
    const T* b = all.b + row / all.m * all.k * all.n;
    Pack results;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        float total = 0.0f;
        if (first + j < count)
#pragma unroll
            for (int u = 0; u < K; ++u)
                if (u < all.k) total = fmaf(float(a[u]), float(b[u * all.n + column]), total);
        results.at[j] = first + j < count ? all.scaled(total, column) : scalar_t(0.0f);
        if (++column < all.n) continue;
        column = 0;
        a += all.k;
        if (++within < all.m) continue;
        within = 0;
        b += all.k * all.n;
    }
    if (packed && first + VEC <= count) {
        *reinterpret_cast<Pack*>(all.c + first) = results;
        return;
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j)
        if (first + j < count) all.c[first + j] = results.at[j];
}

template <int K, class T>
int launch_shallow(const Product<T>& all, cudaStream_t stream) {
    if constexpr (K < MOST_DEPTH)
        if (all.k > K) return launch_shallow<2 * K>(all, stream);
    const int64_t packs = (all.batch * all.m * all.n + VEC - 1) / VEC;
    shallow<K><<<(unsigned)((packs + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
        all, (uintptr_t)all.c % 16 == 0);
    return (int)cudaGetLastError();
}

inline bool is_thin(int64_t m, int64_t n, int64_t k) {
    return m <= MOST_ROWS || n <= MOST_COLUMNS || k <= MOST_DEPTH;
}

template <class T>
int launch(const Product<T>& all, cudaStream_t stream) {
    constexpr int WIDE = sizeof(T) == 1 ? 4 : VEC;  // sums of a thread, of each row
    if (all.k <= MOST_DEPTH) return launch_shallow<1>(all, stream);
    if (are_lone(all)) return launch_lone(all, stream);
    if (all.n <= MOST_COLUMNS && (all.m > MOST_ROWS || all.n < all.m)) {
        if (are_whole((uintptr_t)all.a, all.k)) return launch_columns<1, Whole>(all, stream);
        if (all.k <= SHORT) return launch_short<1>(all, stream);
        return are_lined(all) ? launch_lined<1>(all, stream) : launch_columns<1, Ragged>(all, stream);
    }
    const bool packed = (uintptr_t)all.b % (WIDE * sizeof(T)) == 0 && all.n % WIDE == 0;
    return packed ? launch_rows<1, WIDE>(all, stream) : launch_rows<1, 1>(all, stream);
}

}  // namespace thin
