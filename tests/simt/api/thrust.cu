// thrust's vectors, iterators and algorithms over device memory, host memory and in a kernel; what is
// expected is the standard library's answer.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/fill.h>
#include <thrust/generate.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/random.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>

#include "expect.h"

struct axpy { float a; __host__ __device__ float operator()(float x, float y) const { return a * x + y; } };
struct add3 { template <class T> __host__ __device__ void operator()(T t) { thrust::get<2>(t) = thrust::get<0>(t) + thrust::get<1>(t); } };
__global__ void twice(int* p, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] *= 2; }
__global__ void inside(int* p, int n, int* out) { if (!threadIdx.x) *out = thrust::reduce(thrust::seq, p, p + n); }
int main() {
    std::vector<int> s(1000); for (auto& v : s) v = rand() % 100;
    thrust::device_vector<int> d(s.begin(), s.end());
    thrust::host_vector<int> h = d;
    EXPECT(std::equal(h.begin(), h.end(), s.begin()));
    thrust::sort(d.begin(), d.end());
    auto sorted = s;
    std::sort(sorted.begin(), sorted.end());
    h = d;
    EXPECT(std::equal(h.begin(), h.end(), sorted.begin()));
    EXPECT(thrust::reduce(d.begin(), d.end()) == std::accumulate(s.begin(), s.end(), 0));
    EXPECT(thrust::reduce(d.begin(), d.end(), 0, thrust::maximum<int>()) == sorted.back());
    EXPECT(*thrust::max_element(d.begin(), d.end()) == sorted.back());
    EXPECT(thrust::count(d.begin(), d.end(), 5) == std::count(s.begin(), s.end(), 5));
    thrust::sort(d.begin(), d.end(), thrust::greater<int>());
    EXPECT(d[0] == sorted.back() && d.back() == sorted[0]);
    int* raw = thrust::raw_pointer_cast(d.data());
    twice<<<10, 100>>>(raw, 1000);
    EXPECT(d[0] == 2 * sorted.back());
    d[3] = 7;
    EXPECT(d[3] == 7);
    d[3] += 2;
    EXPECT(d[3] == 9);
    thrust::sequence(d.begin(), d.end());
    EXPECT(d[999] == 999);
    thrust::device_vector<float> x(100, 2.f), y(100), z(100);
    thrust::fill(y.begin(), y.end(), 3.f);
    thrust::transform(x.begin(), x.end(), y.begin(), z.begin(), axpy{2.f});
    EXPECT(z[99] == 7.f);
    using namespace thrust::placeholders;
    thrust::transform(x.begin(), x.end(), y.begin(), y.begin(), 3.f * _1 + _2);
    EXPECT(y[50] == 9.f);
    thrust::for_each(thrust::make_zip_iterator(thrust::make_tuple(x.begin(), y.begin(), z.begin())),
                     thrust::make_zip_iterator(thrust::make_tuple(x.end(), y.end(), z.end())), add3());
    EXPECT(z[0] == 11.f);
    thrust::exclusive_scan(d.begin(), d.end(), d.begin());
    EXPECT(d[999] == 999 * 998 / 2 && d[0] == 0);
    auto end = thrust::unique(d.begin(), d.end());
    EXPECT(end - d.begin() == 999);
    float sq = thrust::transform_reduce(x.begin(), x.end(), thrust::square<float>(), 0.f, thrust::plus<float>());
    EXPECT(sq == 400.f);
    EXPECT(thrust::inner_product(x.begin(), x.end(), x.begin(), 0.f) == 400.f);
    thrust::device_vector<int> keys(4), vals(4);
    keys[0] = 3;
    keys[1] = 1;
    keys[2] = 2;
    keys[3] = 1;
    thrust::sequence(vals.begin(), vals.end());
    thrust::sort_by_key(keys.begin(), keys.end(), vals.begin());
    EXPECT(vals[0] == 1 && vals[1] == 3 && vals[2] == 2 && vals[3] == 0);
    thrust::device_vector<int> ko(4), vo(4);
    auto e = thrust::reduce_by_key(keys.begin(), keys.end(), vals.begin(), ko.begin(), vo.begin());
    EXPECT(e.first - ko.begin() == 3 && vo[0] == 4 && vo[2] == 0);
    thrust::host_vector<int> g(100);
    thrust::generate(g.begin(), g.end(), rand);
    thrust::device_vector<int> gd = g;
    EXPECT(gd[7] == g[7]);
    thrust::copy(gd.begin(), gd.end(), g.begin());
    thrust::device_ptr<int> p = thrust::device_pointer_cast(raw);
    thrust::fill(p, p + 10, 4);
    EXPECT(d[9] == 4);
    thrust::fill(thrust::device, raw, raw + 10, 5);
    EXPECT(d[9] == 5);
    int* out;
    cudaMalloc(&out, 4);
    inside<<<1, 32>>>(raw, 10, out);
    int o;
    cudaMemcpy(&o, out, 4, cudaMemcpyDeviceToHost);
    EXPECT(o == 50);
    auto c = thrust::make_counting_iterator(1);
    EXPECT(thrust::reduce(c, c + 10) == 55);
    thrust::device_vector<int> sq2(10); thrust::transform(c, c + 10, sq2.begin(), [] __device__(int v) { return v * v; }); EXPECT(sq2[9] == 100);
    thrust::copy_if(sq2.begin(), sq2.end(), ko.begin(), [] __device__(int v) { return v % 2 == 0 && v < 40; }); EXPECT(ko[2] == 36);
    thrust::device_vector<int> none;
    none.push_back(3);
    none.push_back(4);
    EXPECT(none.size() == 2 && none[1] == 4);
    thrust::host_vector<float> hf = gd; 
    thrust::stable_sort(thrust::cuda::par.on(0), gd.begin(), gd.end());
    EXPECT(thrust::is_sorted(gd.begin(), gd.end()));
    thrust::sort(g.begin(), g.end());
    EXPECT(g[3] == gd[3]);
    auto zf = thrust::make_zip_iterator(thrust::make_tuple(keys.begin(), vals.begin()));
    thrust::sort(zf, zf + 4, [] __host__ __device__(const thrust::tuple<int,int>& a, const thrust::tuple<int,int>& b) { return thrust::get<1>(a) < thrust::get<1>(b); });
    EXPECT(vals[0] == 0 && keys[0] == 3);
    std::copy(vals.begin(), vals.end(), g.begin());
    return unmet != 0;
}
