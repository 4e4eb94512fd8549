// cub's algorithms on whole arrays, with their two calls, against the standard library's.
#include <cub/cub.cuh>

#include <algorithm>
#include <numeric>
#include <vector>

#include "check.h"

static void* temporary = nullptr;
static size_t bytes = 0;

// Calls twice: for the size, and for the work.
template <class F>
void twice(F call) {
    temporary = nullptr;
    bytes = 0;
    CHECK(call() == cudaSuccess);
    CHECK(bytes > 0);
    cudaMalloc(&temporary, bytes);
    CHECK(call() == cudaSuccess);
    cudaDeviceSynchronize();
    cudaFree(temporary);
}

template <class T>
T* device(const std::vector<T>& from) {
    T* p;
    cudaMalloc(&p, from.size() * sizeof(T));
    cudaMemcpy(p, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice);
    return p;
}

template <class T>
std::vector<T> host(const T* from, size_t n) {
    std::vector<T> to(n);
    cudaMemcpy(to.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost);
    return to;
}

struct Even {
    __host__ __device__ bool operator()(int x) const { return x % 2 == 0; }
};
struct Larger {
    template <class T>
    __host__ __device__ T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
struct ByLastDigit {
    __host__ __device__ bool operator()(int a, int b) const { return a % 10 < b % 10; }
};

int main() {
    const int n = 3000;
    std::vector<int> in(n);
    unsigned seed = 7;
    for (int& x : in) x = (int)((seed = seed * 1664525u + 1013904223u) >> 20) - 2000;
    std::vector<float> reals(n);
    for (int i = 0; i < n; ++i) reals[i] = in[i] * 0.25f;
    int *d = device(in), *out = device(std::vector<int>(n, -1)), *more = device(in);
    float *r = device(reals), *r_out = device(reals);

    // reductions
    twice([&] { return cub::DeviceReduce::Sum(temporary, bytes, d, out, n); });
    CHECK(host(out, 1)[0] == std::accumulate(in.begin(), in.end(), 0));
    twice([&] { return cub::DeviceReduce::Max(temporary, bytes, r, r_out, n); });
    CHECK(host(r_out, 1)[0] == *std::max_element(reals.begin(), reals.end()));
    twice([&] { return cub::DeviceReduce::Min(temporary, bytes, d, out, n); });
    CHECK(host(out, 1)[0] == *std::min_element(in.begin(), in.end()));
    twice([&] { return cub::DeviceReduce::Reduce(temporary, bytes, d, out, n, Larger(), 123456); });
    CHECK(host(out, 1)[0] == 123456);
    const std::vector<int> offsets = {0, 10, 10, 777, 3000};
    int* o = device(offsets);
    twice([&] { return cub::DeviceSegmentedReduce::Sum(temporary, bytes, d, out, 4, o, o + 1); });
    for (int s = 0; s < 4; ++s)
        CHECK(host(out, 4)[s] == std::accumulate(&in[offsets[s]], in.data() + offsets[s + 1], 0));
    // A long sum of floats is as exact as a parallel one.
    std::vector<float> tenths(1 << 20, 0.1f);
    float* t = device(tenths);
    twice([&] { return cub::DeviceReduce::Sum(temporary, bytes, t, r_out, 1 << 20); });
    CHECK(std::fabs(host(r_out, 1)[0] - 104857.6f) < 0.1f);

    // scans
    std::vector<int> scanned(n);
    twice([&] { return cub::DeviceScan::ExclusiveSum(temporary, bytes, d, out, n); });
    std::exclusive_scan(in.begin(), in.end(), scanned.begin(), 0);
    CHECK(host(out, n) == scanned);
    twice([&] { return cub::DeviceScan::InclusiveScan(temporary, bytes, d, out, Larger(), n); });
    std::inclusive_scan(in.begin(), in.end(), scanned.begin(), Larger());
    CHECK(host(out, n) == scanned);
    cudaMemcpy(more, d, n * sizeof(int), cudaMemcpyDeviceToDevice);
    twice([&] { return cub::DeviceScan::InclusiveSum(temporary, bytes, more, more, n); });
    std::inclusive_scan(in.begin(), in.end(), scanned.begin());
    CHECK(host(more, n) == scanned);

    // sorts
    std::vector<int> sorted = in, order(n), indices(n);
    std::sort(sorted.begin(), sorted.end());
    std::iota(indices.begin(), indices.end(), 0);
    twice([&] { return cub::DeviceRadixSort::SortKeys(temporary, bytes, d, out, n); });
    CHECK(host(out, n) == sorted && host(d, n) == in);
    int *index = device(indices), *index_out = device(indices);
    twice([&] {
        return cub::DeviceRadixSort::SortPairsDescending(temporary, bytes, r, r_out, index,
                                                         index_out, n);
    });
    order = indices;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return reals[b] < reals[a]; });
    CHECK(host(index_out, n) == order);
    CHECK(host(r_out, n)[0] == *std::max_element(reals.begin(), reals.end()));
    std::vector<unsigned> low(n);
    for (int i = 0; i < n; ++i) low[i] = (unsigned)in[i];
    unsigned *u = device(low), *u_other = device(low);
    cub::DoubleBuffer<unsigned> buffer(u, u_other);
    twice([&] { return cub::DeviceRadixSort::SortKeys(temporary, bytes, buffer, n, 0, 12); });
    std::stable_sort(low.begin(), low.end(),
                     [](unsigned a, unsigned b) { return a % 4096 < b % 4096; });
    CHECK(host(buffer.Current(), n) == low);
    twice([&] {
        return cub::DeviceSegmentedRadixSort::SortKeys(temporary, bytes, d, out, n, 4, o, o + 1);
    });
    sorted = in;
    for (int s = 0; s < 4; ++s)
        std::sort(sorted.begin() + offsets[s], sorted.begin() + offsets[s + 1]);
    CHECK(host(out, n) == sorted);
    cudaMemcpy(more, index, n * sizeof(int), cudaMemcpyDeviceToDevice);
    twice([&] { return cub::DeviceMergeSort::SortKeys(temporary, bytes, more, n, ByLastDigit()); });
    sorted = indices;
    std::stable_sort(sorted.begin(), sorted.end(), ByLastDigit());
    CHECK(host(more, n) == sorted);

    // selections
    int* count = device(std::vector<int>(1, -1));
    std::vector<int> chosen;
    std::copy_if(in.begin(), in.end(), std::back_inserter(chosen), Even());
    twice([&] { return cub::DeviceSelect::If(temporary, bytes, d, out, count, n, Even()); });
    CHECK(host(count, 1)[0] == (int)chosen.size() && host(out, chosen.size()) == chosen);
    std::vector<char> flags(n);
    for (int i = 0; i < n; ++i) flags[i] = Even()(in[i]);
    char* f = device(flags);
    twice([&] { return cub::DeviceSelect::Flagged(temporary, bytes, d, f, out, count, n); });
    CHECK(host(count, 1)[0] == (int)chosen.size() && host(out, chosen.size()) == chosen);
    twice([&] { return cub::DevicePartition::Flagged(temporary, bytes, d, f, out, count, n); });
    CHECK(host(out, chosen.size()) == chosen);
    CHECK(host(out, n)[n - 1] == *std::find_if_not(in.begin(), in.end(), Even()));
    std::vector<int> runs = {3, 3, 3, 1, 1, 8, 3};
    int *run = device(runs), *lengths = device(runs);
    twice([&] {
        return cub::DeviceRunLengthEncode::Encode(temporary, bytes, run, out, lengths, count, 7);
    });
    CHECK(host(count, 1)[0] == 4 && host(out, 4) == std::vector<int>({3, 1, 8, 3}));
    CHECK(host(lengths, 4) == std::vector<int>({3, 2, 1, 1}));
    twice([&] { return cub::DeviceSelect::Unique(temporary, bytes, run, out, count, 7); });
    CHECK(host(count, 1)[0] == 4 && host(out, 4) == std::vector<int>({3, 1, 8, 3}));

    // histograms
    twice([&] {
        return cub::DeviceHistogram::HistogramEven(temporary, bytes, r, out, 11, -500.0f, 500.0f,
                                                   n);
    });
    std::vector<int> bins(10);
    for (float x : reals)
        if (x >= -500.0f && x < 500.0f) ++bins[(int)((x + 500.0f) / 100.0f)];
    CHECK(host(out, 10) == bins);
    const std::vector<int> levels = {-2000, -10, 0, 1500};
    int* level = device(levels);
    twice([&] {
        return cub::DeviceHistogram::HistogramRange(temporary, bytes, d, out, 4, level, n);
    });
    bins.assign(3, 0);
    for (int x : in)
        for (int b = 0; b < 3; ++b) bins[b] += levels[b] <= x && x < levels[b + 1];
    CHECK(host(out, 3) == bins);

    // Too little storage is refused.
    size_t little = 8;
    cudaMalloc(&temporary, little);
    CHECK(cub::DeviceRadixSort::SortKeys(temporary, little, t, t, 1 << 20) != cudaSuccess);
    return finish();
}
