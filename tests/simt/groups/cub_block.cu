// cub's collectives of warps and blocks against their definitions.
#include <cub/cub.cuh>

#include <algorithm>
#include <vector>

#include "check.h"

#define THREADS 96
#define ITEMS 4
#define TILE (THREADS * ITEMS)

template <class T>
T* device(size_t n) {
    T* p;
    cudaMallocManaged(&p, n * sizeof(T));
    cudaMemset(p, 0, n * sizeof(T));
    return p;
}

template <class T>
T* device(const std::vector<T>& from) {
    T* p = device<T>(from.size());
    cudaMemcpy(p, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice);
    return p;
}

// ---- reductions

struct Longest {  // associative, not commutative: keeps the first of the best
    __device__ int2 operator()(int2 a, int2 b) const { return b.y > a.y ? b : a; }
};

template <cub::BlockReduceAlgorithm ALGORITHM>
__global__ void reduce(const int* in, int* out, int valid) {
    using Reduce = cub::BlockReduce<int, THREADS, ALGORITHM>;
    using Pair = cub::BlockReduce<int2, THREADS, ALGORITHM>;
    __shared__ union {
        typename Reduce::TempStorage numbers;
        typename Pair::TempStorage pairs;
    } storage;
    const int t = threadIdx.x;
    const int sum = Reduce(storage.numbers).Sum(in[t]);
    __syncthreads();
    const int some = Reduce(storage.numbers).Sum(in[t], valid);
    __syncthreads();
    const int most = Reduce(storage.numbers).Reduce(in[t], cub::Max());
    __syncthreads();
    const int least = Reduce(storage.numbers).Reduce(in[t], cub::Min(), valid);
    __syncthreads();
    int items[ITEMS];
    for (int i = 0; i < ITEMS; ++i) items[i] = in[t * ITEMS + i];
    const int all = Reduce(storage.numbers).Sum(items);
    __syncthreads();
    const int2 first = Pair(storage.pairs).Reduce(make_int2(t, in[t] / 8), Longest());
    if (t != 0) return;
    out[0] = sum, out[1] = some, out[2] = most, out[3] = least, out[4] = all, out[5] = first.x;
}

template <cub::BlockReduceAlgorithm ALGORITHM>
void check_reduce(const std::vector<int>& in, int* device_in, int* out) {
    for (int valid : {1, 5, 32, 33, 64, 95, 96}) {
        check_case = valid;
        reduce<ALGORITHM><<<1, THREADS>>>(device_in, out, valid);
        cudaDeviceSynchronize();
        int sum = 0, some = 0, all = 0, most = in[0], least = in[0], first = 0;
        for (int i = 0; i < TILE; ++i) all += in[i];
        for (int t = 0; t < THREADS; ++t) {
            sum += in[t];
            most = std::max(most, in[t]);
            if (t < valid) some += in[t], least = std::min(least, in[t]);
            if (in[t] / 8 > in[first] / 8) first = t;
        }
        CHECK(out[0] == sum && out[1] == some && out[2] == most);
        CHECK(out[3] == least && out[4] == all && out[5] == first);
    }
}

__global__ void reduce_3d(int* out) {
    using Reduce = cub::BlockReduce<int, 8, cub::BLOCK_REDUCE_WARP_REDUCTIONS, 6, 2>;
    __shared__ Reduce::TempStorage storage;
    const int rank = (threadIdx.z * 6 + threadIdx.y) * 8 + threadIdx.x;
    const int sum = Reduce(storage).Sum(rank);
    if (rank == 0) *out = sum;
}

// ---- scans

struct Running {  // the prefix of a block's later tiles
    int total;
    __device__ int operator()(int aggregate) {
        const int before = total;
        total += aggregate;
        return before;
    }
};

template <cub::BlockScanAlgorithm ALGORITHM>
__global__ void scan(const int* in, int* out) {
    using Scan = cub::BlockScan<int, THREADS, ALGORITHM>;
    __shared__ typename Scan::TempStorage storage;
    const int t = threadIdx.x;
    int results[12] = {}, total = 0;
    Scan(storage).ExclusiveSum(in[t], results[0]);
    __syncthreads();
    Scan(storage).InclusiveSum(in[t], results[1], results[2]);
    __syncthreads();
    Scan(storage).ExclusiveScan(in[t], results[3], 40, cub::Max());
    __syncthreads();
    Scan(storage).InclusiveScan(in[t], results[4], cub::Min(), results[5]);
    __syncthreads();
    Running running{100};
    for (int tile = 0; tile < 2; ++tile) {
        Scan(storage).InclusiveSum(in[t], results[6 + tile], running);
        __syncthreads();
    }
    int items[ITEMS], scanned[ITEMS];
    for (int i = 0; i < ITEMS; ++i) items[i] = in[t * ITEMS + i];
    Scan(storage).ExclusiveSum(items, scanned, total);
    results[8] = scanned[2];
    results[9] = total;
    __syncthreads();
    Scan(storage).InclusiveScan(items, scanned, cub::Max());
    results[10] = scanned[1];
    __syncthreads();
    Scan(storage).ExclusiveScan(items, items, -5, cub::Max());
    results[11] = items[3];
    for (int r = 0; r < 12; ++r) out[r * THREADS + t] = results[r];
}

template <cub::BlockScanAlgorithm ALGORITHM>
void check_scan(const std::vector<int>& in, int* device_in, int* out) {
    scan<ALGORITHM><<<1, THREADS>>>(device_in, out);
    cudaDeviceSynchronize();
    int sum = 0, most = 40, least = in[0], total = 0, all = 0;
    for (int t = 0; t < THREADS; ++t) total += in[t];
    for (int i = 0; i < TILE; ++i) all += in[i];
    const int lowest = *std::min_element(in.begin(), in.begin() + THREADS);
    for (int t = 0; t < THREADS; ++t) {
        check_case = t;
        const int* r = out + t;
        least = std::min(least, in[t]);
        CHECK(r[0] == sum && r[1 * THREADS] == sum + in[t] && r[2 * THREADS] == total);
        CHECK(r[3 * THREADS] == most && r[4 * THREADS] == least && r[5 * THREADS] == lowest);
        CHECK(r[6 * THREADS] == 100 + sum + in[t]);
        CHECK(r[7 * THREADS] == 100 + total + sum + in[t]);
        sum += in[t];
        most = std::max(most, in[t]);
        int before = 0, item_most = -5;
        for (int i = 0; i < t * ITEMS + 2; ++i) {
            before += in[i];
            item_most = std::max(item_most, in[i]);
        }
        CHECK(r[8 * THREADS] == before && r[9 * THREADS] == all && r[10 * THREADS] == item_most);
        CHECK(r[11 * THREADS] == std::max(item_most, in[t * ITEMS + 2]));
    }
}

// ---- loads, stores, exchanges

template <cub::BlockLoadAlgorithm LOAD, cub::BlockStoreAlgorithm STORE>
__global__ void copy(const int* in, int* out, int valid) {
    using Load = cub::BlockLoad<int, 128, ITEMS, LOAD>;
    using Store = cub::BlockStore<int, 128, ITEMS, STORE>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Store::TempStorage store;
    } storage;
    int items[ITEMS];
    Load(storage.load).Load(in, items, valid, -1);
    __syncthreads();
    for (int i = 0; i < ITEMS; ++i)  // that the arrangement is blocked or striped
        items[i] += 1000 * (LOAD == cub::BLOCK_LOAD_STRIPED ? i : threadIdx.x % 7);
    Store(storage.store).Store(out, items, valid);
}

template <cub::BlockLoadAlgorithm LOAD, cub::BlockStoreAlgorithm STORE>
void check_copy(const std::vector<int>& in, int* device_in, int* out) {
    for (int valid : {512, 333}) {
        check_case = LOAD * 1000 + valid;
        cudaMemset(out, 0xff, 512 * sizeof(int));
        copy<LOAD, STORE><<<1, 128>>>(device_in, out, valid);
        cudaDeviceSynchronize();
        for (int i = 0; i < 512; ++i) {
            const int mark = LOAD == cub::BLOCK_LOAD_STRIPED ? i / 128 : i / ITEMS % 7;
            CHECK(out[i] == (i < valid ? in[i] + 1000 * mark : -1));
        }
    }
}

__global__ void exchange(int* out) {
    using Exchange = cub::BlockExchange<int, 128, 8>;
    __shared__ Exchange::TempStorage storage;
    int items[8], ranks[8];
    const int t = threadIdx.x;
    for (int i = 0; i < 8; ++i) items[i] = i * 128 + t;
    Exchange(storage).StripedToBlocked(items, items);
    bool right = true;
    for (int i = 0; i < 8; ++i) right &= items[i] == t * 8 + i;
    __syncthreads();
    Exchange(storage).BlockedToWarpStriped(items, items);
    for (int i = 0; i < 8; ++i)
        right &= items[i] == t / warpSize * warpSize * 8 + i * warpSize + t % warpSize;
    __syncthreads();
    Exchange(storage).WarpStripedToBlocked(items, items);
    __syncthreads();
    Exchange(storage).BlockedToStriped(items, items);
    for (int i = 0; i < 8; ++i) {
        right &= items[i] == i * 128 + t;
        ranks[i] = 1023 - items[i];
    }
    __syncthreads();
    Exchange(storage).ScatterToBlocked(items, items, ranks);
    for (int i = 0; i < 8; ++i) right &= items[i] == 1023 - (t * 8 + i);
    out[t] = right;
}

// ---- sorts, histograms, neighbours

template <class K>
__global__ void sort(const K* in, K* keys_out, int* values_out, bool descending, int begin,
                     int end) {
    using Sort = cub::BlockRadixSort<K, THREADS, ITEMS, int>;
    __shared__ typename Sort::TempStorage storage;
    K keys[ITEMS];
    int values[ITEMS];
    for (int i = 0; i < ITEMS; ++i) {
        values[i] = threadIdx.x * ITEMS + i;
        keys[i] = in[values[i]];
    }
    if (descending) Sort(storage).SortDescendingBlockedToStriped(keys, values, begin, end);
    else Sort(storage).Sort(keys, values, begin, end);
    for (int i = 0; i < ITEMS; ++i) {
        const int at = descending ? i * THREADS + threadIdx.x : threadIdx.x * ITEMS + i;
        keys_out[at] = keys[i];
        values_out[at] = values[i];
    }
}

template <class K>
void check_sort(const std::vector<K>& in, int begin = 0, int end = sizeof(K) * 8) {
    K *device_in = device(in), *keys = device<K>(TILE);
    int* values = device<int>(TILE);
    const auto part = [&](K k) {  // the bits that the sort looks at
        const long long bits = (long long)k >> begin & ((1ll << (end - begin) % 63) - 1);
        return end < (int)sizeof(K) * 8 ? (K)bits : k;
    };
    for (bool descending : {false, true}) {
        sort<K><<<1, THREADS>>>(device_in, keys, values, descending, begin, end);
        cudaDeviceSynchronize();
        std::vector<int> order(TILE);
        for (int i = 0; i < TILE; ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
            return descending ? part(in[b]) < part(in[a]) : part(in[a]) < part(in[b]);
        });
        for (int i = 0; i < TILE; ++i) {
            check_case = i;
            CHECK(values[i] == order[i] && keys[i] == in[order[i]]);
        }
    }
}

template <cub::BlockHistogramAlgorithm ALGORITHM>
__global__ void histogram(const int* in, unsigned* out) {
    using Histogram = cub::BlockHistogram<unsigned char, THREADS, ITEMS, 64, ALGORITHM>;
    __shared__ typename Histogram::TempStorage storage;
    __shared__ unsigned counts[64];
    unsigned char items[ITEMS];
    for (int i = 0; i < ITEMS; ++i) items[i] = in[threadIdx.x * ITEMS + i] % 64;
    Histogram(storage).Histogram(items, counts);
    __syncthreads();
    Histogram(storage).Composite(items, counts);
    __syncthreads();
    if (threadIdx.x < 64) out[threadIdx.x] = counts[threadIdx.x];
}

template <cub::BlockHistogramAlgorithm ALGORITHM>
void check_histogram(const std::vector<int>& in, int* device_in) {
    unsigned* counts = device<unsigned>(64);
    histogram<ALGORITHM><<<1, THREADS>>>(device_in, counts);
    cudaDeviceSynchronize();
    for (int b = 0; b < 64; ++b) {
        unsigned count = 0;
        for (int i = 0; i < TILE; ++i) count += in[i] % 64 == b;
        check_case = b;
        CHECK(counts[b] == 2 * count);
    }
}

__global__ void neighbours(const int* in, int* out) {
    using Flags = cub::BlockDiscontinuity<int, THREADS>;
    using Shuffle = cub::BlockShuffle<int, THREADS>;
    __shared__ Flags::TempStorage flags;
    __shared__ Shuffle::TempStorage shuffle;
    int items[ITEMS], heads[ITEMS], before[ITEMS], rotated;
    for (int i = 0; i < ITEMS; ++i) items[i] = in[threadIdx.x * ITEMS + i] / 32;
    Flags(flags).FlagHeads(heads, items, cub::Inequality());
    Shuffle(shuffle).Up(items, before);
    __syncthreads();
    Shuffle(shuffle).Rotate(threadIdx.x, rotated, 5);
    int right = rotated == (threadIdx.x + 5) % THREADS;
    for (int i = 0; i < ITEMS; ++i) {
        const int at = threadIdx.x * ITEMS + i;
        right &= heads[i] == (at == 0 || in[at] / 32 != in[at - 1] / 32);
        right &= at == 0 || before[i] == in[at - 1] / 32;
    }
    out[threadIdx.x] = right;
}

// ---- warps

template <int LOGICAL>
__global__ void warps(const int* in, int* out) {
    using Reduce = cub::WarpReduce<int, LOGICAL>;
    using Scan = cub::WarpScan<int, LOGICAL>;
    __shared__ typename Reduce::TempStorage reduces[THREADS];
    __shared__ typename Scan::TempStorage scans[THREADS];
    const int t = threadIdx.x, w = t / LOGICAL;
    int results[5], total;
    results[0] = Reduce(reduces[w]).Sum(in[t]);
    results[1] = Reduce(reduces[w]).Reduce(in[t], cub::Max(), LOGICAL - 1);
    Scan(scans[w]).InclusiveSum(in[t], results[2]);
    Scan(scans[w]).ExclusiveSum(in[t], results[3], total);
    results[4] = Scan(scans[w]).Broadcast(in[t], LOGICAL - 1) + total;
    for (int r = 0; r < 5; ++r) out[r * THREADS + t] = results[r];
}

template <int LOGICAL>
void check_warps(const std::vector<int>& in, int* device_in, int* out) {
    warps<LOGICAL><<<1, THREADS>>>(device_in, out);
    cudaDeviceSynchronize();
    for (int base = 0; base < THREADS; base += LOGICAL) {
        int total = 0, most = in[base], sum = 0;
        for (int t = base; t < base + LOGICAL; ++t) {
            total += in[t];
            if (t < base + LOGICAL - 1) most = std::max(most, in[t]);
        }
        check_case = base;
        CHECK(out[base] == total && out[THREADS + base] == most);
        for (int t = base; t < base + LOGICAL; ++t) {
            CHECK(out[3 * THREADS + t] == sum);
            sum += in[t];
            CHECK(out[2 * THREADS + t] == sum);
            CHECK(out[4 * THREADS + t] == in[base + LOGICAL - 1] + total);
        }
    }
}

int main() {
    std::vector<int> in(512);
    unsigned seed = 1;
    for (int& x : in) x = (seed = seed * 1664525u + 1013904223u) >> 22;
    int *device_in = device(in), *out = device<int>(12 * THREADS + 512);
    check_reduce<cub::BLOCK_REDUCE_WARP_REDUCTIONS>(in, device_in, out);
    check_reduce<cub::BLOCK_REDUCE_RAKING>(in, device_in, out);
    reduce_3d<<<1, dim3(8, 6, 2)>>>(out);
    cudaDeviceSynchronize();
    CHECK(*out == 96 * 95 / 2);
    check_scan<cub::BLOCK_SCAN_RAKING>(in, device_in, out);
    check_scan<cub::BLOCK_SCAN_WARP_SCANS>(in, device_in, out);
    check_copy<cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_DIRECT>(in, device_in, out);
    check_copy<cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED>(in, device_in, out);
    check_copy<cub::BLOCK_LOAD_VECTORIZE, cub::BLOCK_STORE_VECTORIZE>(in, device_in, out);
    check_copy<cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_TRANSPOSE>(in, device_in, out);
    check_copy<cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE>(in, device_in, out);
    exchange<<<1, 128>>>(out);
    cudaDeviceSynchronize();
    for (int t = 0; t < 128; ++t) CHECK(out[t] == 1);
    std::vector<int> numbers(in.begin(), in.begin() + TILE);
    std::vector<float> reals(TILE);
    std::vector<unsigned char> bytes(TILE);
    for (int i = 0; i < TILE; ++i) {
        numbers[i] = numbers[i] * 7919 - 3000000;
        reals[i] = numbers[i] % 1000 * 0.125f;
        bytes[i] = (unsigned char)numbers[i];
    }
    check_sort(numbers);
    check_sort(reals);
    check_sort(bytes);
    check_sort(std::vector<int>(in.begin(), in.begin() + TILE), 3, 9);
    check_histogram<cub::BLOCK_HISTO_SORT>(in, device_in);
    check_histogram<cub::BLOCK_HISTO_ATOMIC>(in, device_in);
    neighbours<<<1, THREADS>>>(device_in, out);
    cudaDeviceSynchronize();
    for (int t = 0; t < THREADS; ++t) CHECK(out[t] == 1);
    check_warps<32>(in, device_in, out);
    check_warps<16>(in, device_in, out);
    check_warps<4>(in, device_in, out);
    return finish();
}
