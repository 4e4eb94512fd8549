// A, B and their product by lanes that hold elements as test_matrix_lanes.py is told: a lane's registers
// are read and written an element at a time. API(x) is cudax or hipx.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static int fnuz, faults;

template <class Number, class Bits> static uint64_t bits(int v) {
    Number number = (Number)v;
    Bits all;
    memcpy(&all, &number, sizeof all);
    return all;
}
template <int WIDE> static __device__ void put(void* registers, int e, uint64_t value) {
    unsigned char* bytes = (unsigned char*)registers;
    for (int bit = 0; bit < WIDE; ++bit) {
        const int at = e * WIDE + bit;
        if (value >> bit & 1) bytes[at / 8] |= 1 << at % 8;
    }
}
template <class T> static T* room(size_t count) {
    T* made;
    if (API(Malloc)((void**)&made, count * sizeof(T)) != API(Success)) exit(3);
    return made;
}
template <class Sum, class Encode, class Kernel>
static void look(const char* name, int m, int n, int k, int threads, Encode encode, Kernel kernel) {
    std::vector<int> a(m * k), b(k * n);
    std::vector<uint64_t> codes(m * k + k * n);
    for (int i = 0; i < m * k; ++i) codes[i] = encode(a[i] = (i * 7 + i / k * 3) % 5 - 2);
    for (int i = 0; i < k * n; ++i) codes[m * k + i] = encode(b[i] = (i * 3 + i / n) % 5 - 2);
    uint64_t* in = room<uint64_t>(codes.size());
    Sum* out = room<Sum>(m * n);
    std::vector<Sum> got(m * n);
    (void)API(Memcpy)(in, codes.data(), codes.size() * 8, API(MemcpyHostToDevice));
    (void)API(Memset)(out, 255, m * n * sizeof(Sum));
    kernel<<<1, threads>>>(in, in + m * k, out);
    if (API(Memcpy)(got.data(), out, m * n * sizeof(Sum), API(MemcpyDeviceToHost)) != API(Success)) exit(3);
    int wrong = 0;
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            int want = 0;
            for (int x = 0; x < k; ++x) want += a[i * k + x] * b[x * n + j];
            wrong += got[i * n + j] != (Sum)want;
        }
    if (wrong) printf("%s: %d of %d\n", name, wrong, m * n);
    faults += wrong != 0;
}
