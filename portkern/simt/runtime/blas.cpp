// Matrix products: packed panels and a register tile, so that a test's cuBLAS call takes
// milliseconds; and the vector operations.
#include "simt/blas.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "host.h"
#include "launch.h"
#include "memory.h"
#include "simt/graph.h"
#include "simt/narrow.h"

namespace simt::blas {
namespace {

std::mutex lock;
std::set<const Handle*>& handles() {
    static auto* all = new std::set<const Handle*>;
    return *all;
}

size_t bytes_of(Type type) {
    switch (type) {
        case Type::f64: return 8;
        case Type::f32: case Type::i32: return 4;
        case Type::f16: case Type::bf16: return 2;
        default: return 1;
    }
}

// Calls f with a null pointer of the C++ type that `type` is kept as.
template <class F>
void as_type(Type type, F&& f) {
    switch (type) {
        case Type::f32: return f((const float*)nullptr);
        case Type::f64: return f((const double*)nullptr);
        case Type::f16: return f((const simt::f16*)nullptr);
        case Type::bf16: return f((const simt::bf16*)nullptr);
        case Type::e4m3: return f((const simt::e4m3*)nullptr);
        case Type::e5m2: return f((const simt::e5m2*)nullptr);
        case Type::i8: return f((const int8_t*)nullptr);
        case Type::i32: return f((const int32_t*)nullptr);
    }
}

bool known(Type type) {
    bool found = false;
    as_type(type, [&](auto) { found = true; });
    return found;
}

double load(Type type, const void* p, int64_t i) {
    double value = 0;
    as_type(type, [&](auto null) {
        using T = std::remove_cv_t<std::remove_pointer_t<decltype(null)>>;
        const T& x = static_cast<const T*>(p)[i];
        if constexpr (std::is_arithmetic<T>::value) value = (double)x;
        else value = (double)(float)x;
    });
    return value;
}

void store(Type type, void* p, int64_t i, double value) {
    as_type(type, [&](auto null) {
        using T = std::remove_cv_t<std::remove_pointer_t<decltype(null)>>;
        T& to = static_cast<T*>(p)[i];
        if constexpr (std::is_same<T, int8_t>::value)
            to = (int8_t)std::min(127.0, std::max(-128.0, std::nearbyint(value)));
        else if constexpr (std::is_same<T, int32_t>::value)
            to = (int32_t)(uint32_t)(int64_t)value;
        else
            to = T(value);
    });
}

// ---- may the device touch it?

bool touches(const void* p, int64_t elements, Type type, const char* what, Site at) {
    if (elements <= 0) return true;
    return on_device(p, (size_t)elements * bytes_of(type), what, at);
}

bool touches(const Matrix& m, int64_t rows, int64_t columns, int64_t batch, const char* what,
             Site at) {
    if (rows <= 0 || columns <= 0 || batch <= 0) return true;
    const int64_t one = (columns - 1) * m.ld + rows;
    if (m.stride < 0) return false;
    return touches(m.at, (batch - 1) * m.stride + one, m.type, what, at);
}

bool touches(Vector v, int64_t n, Type type, const char* what, Site at) {
    if (n <= 0) return true;
    return touches(v.at, (n - 1) * std::abs(v.increment) + 1, type, what, at);
}

void wrote(const Matrix& m, int64_t rows, int64_t columns) {
    const int64_t size = (int64_t)bytes_of(m.type);
    char* at = static_cast<char*>(const_cast<void*>(m.at));
    for (int64_t j = 0; j < columns; ++j)
        mark_written(at + j * m.ld * size, (size_t)(rows * size));
}

// ---- the product

constexpr int64_t depth = 256, tall = 128, columns_tile = 4;

template <class T>
struct Tile {
    typedef T Row __attribute__((vector_size(32)));
    static constexpr int64_t lanes = 32 / sizeof(T), rows = 2 * lanes;
};

int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// `rows` x `columns` of op(m) from (row, column) on, as panels of `height` rows, each panel column
// by column; zeros where a panel reaches beyond the matrix.
template <class T, class In>
void pack_type(T* to, const Matrix& m, const In* from, int64_t row, int64_t rows, int64_t column,
               int64_t columns, int64_t height) {
    const int64_t down = m.transposed ? m.ld : 1, across = m.transposed ? 1 : m.ld;
    for (int64_t first = 0; first < rows; first += height)
        for (int64_t j = 0; j < columns; ++j)
            for (int64_t i = first; i < first + height; ++i) {
                T value = 0;
                if (i < rows) {
                    const In& x = from[(row + i) * down + (column + j) * across];
                    if constexpr (std::is_arithmetic<In>::value) value = (T)x;
                    else value = (T)(float)x;
                }
                *to++ = value;
            }
}
template <class T>
void pack(T* to, const Matrix& m, int64_t row, int64_t rows, int64_t column, int64_t columns,
          int64_t height) {
    as_type(m.type, [&](auto null) {
        pack_type(to, m, static_cast<decltype(null)>(m.at), row, rows, column, columns, height);
    });
}

// sum[2 rows of lanes][4] += a panel of A times a panel of B, `k` deep. Columns of `sum` are `ld`
// elements apart.
template <class T>
void multiply_tile(T* sum, int64_t ld, const T* a, const T* b, int64_t k) {
    using Row = typename Tile<T>::Row;
    constexpr int64_t lanes = Tile<T>::lanes;
    Row c[columns_tile][2];
    for (int64_t j = 0; j < columns_tile; ++j) memcpy(c[j], sum + j * ld, sizeof c[j]);
    for (int64_t p = 0; p < k; ++p, a += 2 * lanes, b += columns_tile) {
        Row low, high;
        memcpy(&low, a, sizeof low);
        memcpy(&high, a + lanes, sizeof high);
        for (int64_t j = 0; j < columns_tile; ++j) {
            c[j][0] += low * b[j];
            c[j][1] += high * b[j];
        }
    }
    for (int64_t j = 0; j < columns_tile; ++j) memcpy(sum + j * ld, c[j], sizeof c[j]);
}

// op(a) op(b), as columns of `ld` elements (m rounded up to a tile's rows).
template <class T>
std::vector<T> product(const Gemm& g, int64_t ld) {
    constexpr int64_t rows = Tile<T>::rows;
    const int64_t wide = padded(g.n, columns_tile);
    std::vector<T> sum((size_t)(ld * wide));
    std::vector<T> left((size_t)(padded(tall, rows) * depth)), right((size_t)(wide * depth));
    Matrix b = g.b;
    b.transposed = !b.transposed;  // panels of B's columns are panels of rows of its transpose
    for (int64_t k = 0; k < g.k; k += depth) {
        const int64_t deep = std::min(depth, g.k - k);
        pack(right.data(), b, 0, g.n, k, deep, columns_tile);
        for (int64_t i = 0; i < g.m; i += tall) {
            const int64_t high = std::min(tall, g.m - i);
            pack(left.data(), g.a, i, high, k, deep, rows);
            for (int64_t j = 0; j < g.n; j += columns_tile)
                for (int64_t r = 0; r < high; r += rows)
                    multiply_tile(sum.data() + j * ld + i + r, ld, left.data() + r * deep,
                                  right.data() + j * deep, deep);
        }
    }
    return sum;
}

double gelu(double x) {  // Hendrycks and Gimpel's approximation
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_gradient(double x) {
    const double scale = std::sqrt(2 / M_PI);
    const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}

double finish_element(const Epilogue& e, int64_t i, int64_t j, int64_t batch, double value) {
    if (e.bias) value += load(e.bias_type, e.bias, i);
    const int64_t at = batch * e.aux_stride + j * e.aux_ld + i;
    switch (e.activation) {
        case Activation::relu: return std::max(value, 0.0);
        case Activation::gelu:
            if (e.aux) store(e.aux_type, e.aux, at, value);
            return gelu(value);
        case Activation::gelu_gradient: return value * gelu_gradient(load(e.aux_type, e.aux, at));
        default: return value;
    }
}

// One column: the usual case stays a loop that the compiler vectorises.
template <class T>
void write_column(const Gemm& g, const T* sum, int64_t j, int64_t batch) {
    const bool plain = g.epilogue.activation == Activation::none && !g.epilogue.bias;
    if (plain && g.c.type == Type::f32 && g.d.type == Type::f32 && std::is_same<T, float>::value) {
        const float alpha = (float)g.alpha, beta = (float)g.beta;
        const float* c = static_cast<const float*>(g.c.at) + j * g.c.ld;
        float* d = static_cast<float*>(const_cast<void*>(g.d.at)) + j * g.d.ld;
        if (beta == 0)
            for (int64_t i = 0; i < g.m; ++i) d[i] = alpha * (float)sum[i];
        else
            for (int64_t i = 0; i < g.m; ++i) d[i] = alpha * (float)sum[i] + beta * c[i];
        return;
    }
    for (int64_t i = 0; i < g.m; ++i) {
        double value = g.alpha == 0 ? 0 : g.alpha * (double)sum[i];
        if (g.beta != 0) value += g.beta * load(g.c.type, g.c.at, j * g.c.ld + i);
        value = finish_element(g.epilogue, i, j, batch, value);
        store(g.d.type, const_cast<void*>(g.d.at), j * g.d.ld + i, value);
    }
}

template <class T>
void multiply(const Gemm& g, int64_t batch) {
    const int64_t ld = padded(g.m, Tile<T>::rows);
    Gemm used = g;
    if (g.alpha == 0) used.k = 0;  // a and b are not read, not even their NaNs
    const std::vector<T> sum = product<T>(used, ld);
    for (int64_t j = 0; j < g.n; ++j) write_column(g, sum.data() + j * ld, j, batch);
    wrote(g.d, g.m, g.n);
    if (g.epilogue.aux && g.epilogue.activation == Activation::gelu)
        wrote({static_cast<char*>(g.epilogue.aux) +
                   batch * g.epilogue.aux_stride * (int64_t)bytes_of(g.epilogue.aux_type),
               g.epilogue.aux_type, g.epilogue.aux_ld, 0, false},
              g.m, g.n);
}

void multiply_one(const Gemm& g, int64_t batch) {
    if (g.sum == Sum::f64) multiply<double>(g, batch);
    else if (g.sum == Sum::i32) multiply<int32_t>(g, batch);
    else multiply<float>(g, batch);
}

bool fits(const Matrix& m, int64_t rows, int64_t columns) {
    return m.ld >= std::max<int64_t>(1, m.transposed ? columns : rows);
}

// The matrix as it lies in memory: its transpose when op() transposes it.
bool readable(const Matrix& m, int64_t rows, int64_t columns, int64_t batch, const char* what,
              Site at) {
    if (m.transposed) std::swap(rows, columns);
    return touches(m, rows, columns, batch, what, at);
}

bool sound(const Gemm& g) {
    return g.m >= 0 && g.n >= 0 && g.k >= 0 && g.batch >= 0 && fits(g.a, g.m, g.k) &&
           fits(g.b, g.k, g.n) && fits(g.c, g.m, g.n) && fits(g.d, g.m, g.n);
}
bool known(const Gemm& g) {
    return known(g.a.type) && known(g.b.type) && known(g.c.type) && known(g.d.type);
}

bool within_buffers(const Gemm& g, Site at) {
    const Epilogue& e = g.epilogue;
    const bool product = g.alpha != 0 && g.k > 0;
    return (!product || (readable(g.a, g.m, g.k, g.batch, "read as matrix A", at) &&
                         readable(g.b, g.k, g.n, g.batch, "read as matrix B", at))) &&
           (g.beta == 0 || touches(g.c, g.m, g.n, g.batch, "read as matrix C", at)) &&
           touches(g.d, g.m, g.n, g.batch, "written as a matrix", at) &&
           (!e.bias || touches(e.bias, g.m, e.bias_type, "read as a bias", at)) &&
           (!e.aux || touches({e.aux, e.aux_type, e.aux_ld, e.aux_stride, false}, g.m, g.n, g.batch,
                              "used as an auxiliary matrix", at));
}

const void* advance(const Matrix& m, int64_t batch) {
    return static_cast<const char*>(m.at) + batch * m.stride * (int64_t)bytes_of(m.type);
}

int begin(const Handle* handle) {
    if (const int bad = check(handle)) return bad;
    if (enter()) return execution_failed;
    count_launch(facts.hip ? "hipblas" : "cublas");
    return ok;
}

}  // namespace

int create(Handle** handle) {
    if (!handle) return invalid_value;
    *handle = new Handle;
    std::lock_guard<std::mutex> guard(lock);
    handles().insert(*handle);
    return ok;
}

int destroy(Handle* handle) {
    std::lock_guard<std::mutex> guard(lock);
    if (!handles().erase(handle)) return not_initialized;
    delete handle;
    return ok;
}

int check(const Handle* handle) {
    std::lock_guard<std::mutex> guard(lock);
    if (!handles().count(handle)) return not_initialized;
    const bool refused = api::refuse_captured(handle->stream, "a BLAS call on a stream that is being "
                                                              "captured", nullptr);
    return refused ? not_supported : ok;
}

double scalar(const void* p, Type type) { return load(type, p, 0); }

int gemm(const Handle* handle, const Gemm& call, Site at) {
    const DeviceWork work;
    if (const int bad = begin(handle)) return bad;
    if (!sound(call)) return invalid_value;
    if (!known(call)) return not_supported;
    if (!call.m || !call.n || !call.batch) return ok;
    if (!within_buffers(call, at)) return execution_failed;
    for (int64_t i = 0; i < call.batch; ++i) {
        Gemm one = call;
        for (Matrix* m : {&one.a, &one.b, &one.c, &one.d}) m->at = advance(*m, i);
        multiply_one(one, i);
    }
    return ok;
}

int gemm_pointers(const Handle* handle, const Gemm& call, const void* const* a,
                  const void* const* b, void* const* c, Site at) {
    const DeviceWork work;
    if (const int bad = begin(handle)) return bad;
    if (!sound(call)) return invalid_value;
    for (int64_t i = 0; i < call.batch; ++i) {
        Gemm one = call;
        one.batch = 1;
        if (!on_device(a + i, sizeof *a, "read from an array of pointers", at) ||
            !on_device(b + i, sizeof *b, "read from an array of pointers", at) ||
            !on_device(c + i, sizeof *c, "read from an array of pointers", at))
            return execution_failed;
        one.a.at = a[i];
        one.b.at = b[i];
        one.c.at = one.d.at = c[i];
        if (const int bad = gemm(handle, one, at)) return bad;
    }
    return ok;
}

// ---- matrices and vectors

namespace {

// Element i of a vector; a negative increment counts from its other end.
int64_t place(Vector v, int64_t n, int64_t i) {
    return v.increment >= 0 ? i * v.increment : (i - n + 1) * v.increment;
}

void wrote(Vector v, int64_t n, Type type) {
    const int64_t size = (int64_t)bytes_of(type);
    char* at = static_cast<char*>(const_cast<void*>(v.at));
    for (int64_t i = 0; i < n; ++i)
        mark_written(at + place(v, n, i) * size, (size_t)size);
}

void* mutable_at(Vector v) { return const_cast<void*>(v.at); }

}  // namespace

int gemv(const Handle* handle, bool transposed, int64_t m, int64_t n, double alpha, const Matrix& a,
         Vector x, double beta, Vector y, Site at) {
    const DeviceWork work;
    if (const int bad = begin(handle)) return bad;
    if (m < 0 || n < 0 || !x.increment || !y.increment || !fits(a, m, n)) return invalid_value;
    const int64_t out = transposed ? n : m, in = transposed ? m : n;
    if (!touches(a, m, n, 1, "read as a matrix", at) || !touches(x, in, a.type, "read", at) ||
        !touches(y, out, a.type, "written", at))
        return execution_failed;
    for (int64_t i = 0; i < out; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < in && alpha != 0; ++k) {
            const int64_t where = transposed ? i * a.ld + k : k * a.ld + i;
            sum += load(a.type, a.at, where) * load(a.type, x.at, place(x, in, k));
        }
        const int64_t to = place(y, out, i);
        const double before = beta == 0 ? 0 : beta * load(a.type, y.at, to);
        store(a.type, mutable_at(y), to, alpha * sum + before);
    }
    wrote(y, out, a.type);
    return ok;
}

int ger(const Handle* handle, int64_t m, int64_t n, double alpha, Vector x, Vector y,
        const Matrix& a, Site at) {
    const DeviceWork work;
    if (const int bad = begin(handle)) return bad;
    if (m < 0 || n < 0 || !x.increment || !y.increment || !fits(a, m, n)) return invalid_value;
    if (!touches(a, m, n, 1, "updated as a matrix", at) || !touches(x, m, a.type, "read", at) ||
        !touches(y, n, a.type, "read", at))
        return execution_failed;
    for (int64_t j = 0; j < n; ++j)
        for (int64_t i = 0; i < m; ++i) {
            const double by = alpha * load(a.type, x.at, place(x, m, i)) *
                              load(a.type, y.at, place(y, n, j));
            store(a.type, const_cast<void*>(a.at), j * a.ld + i,
                  load(a.type, a.at, j * a.ld + i) + by);
        }
    return ok;
}

int geam(const Handle* handle, int64_t m, int64_t n, double alpha, const Matrix& a, double beta,
         const Matrix& b, const Matrix& c, Site at) {
    const DeviceWork work;
    if (const int bad = begin(handle)) return bad;
    if (m < 0 || n < 0 || !fits(a, m, n) || !fits(b, m, n) || !fits(c, m, n)) return invalid_value;
    if ((alpha != 0 && !readable(a, m, n, 1, "read as matrix A", at)) ||
        (beta != 0 && !readable(b, m, n, 1, "read as matrix B", at)) ||
        !touches(c, m, n, 1, "written as a matrix", at))
        return execution_failed;
    const auto element = [](const Matrix& x, int64_t i, int64_t j) {
        return load(x.type, x.at, x.transposed ? i * x.ld + j : j * x.ld + i);
    };
    for (int64_t j = 0; j < n; ++j)
        for (int64_t i = 0; i < m; ++i) {
            double value = alpha == 0 ? 0 : alpha * element(a, i, j);
            if (beta != 0) value += beta * element(b, i, j);
            store(c.type, const_cast<void*>(c.at), j * c.ld + i, value);
        }
    blas::wrote(c, m, n);
    return ok;
}

int axpy(const Handle* handle, Type type, int64_t n, double alpha, Vector x, Vector y, Site at) {
    const DeviceWork work;
    if (const int bad = begin(handle)) return bad;
    if (!touches(x, n, type, "read", at) || !touches(y, n, type, "updated", at))
        return execution_failed;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t to = place(y, n, i);
        store(type, mutable_at(y), to,
              load(type, y.at, to) + alpha * load(type, x.at, place(x, n, i)));
    }
    return ok;
}

int scale(const Handle* handle, Type type, int64_t n, double alpha, Vector x, Site at) {
    const DeviceWork work;
    if (const int bad = begin(handle)) return bad;
    if (x.increment <= 0) return n > 0 ? invalid_value : ok;
    if (!touches(x, n, type, "scaled", at)) return execution_failed;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t to = place(x, n, i);
        store(type, mutable_at(x), to, alpha * load(type, x.at, to));
    }
    return ok;
}

int copy(const Handle* handle, Type type, int64_t n, Vector x, Vector y, Site at) {
    const DeviceWork work;
    if (const int bad = begin(handle)) return bad;
    if (!touches(x, n, type, "read", at) || !touches(y, n, type, "written", at))
        return execution_failed;
    for (int64_t i = 0; i < n; ++i)
        store(type, mutable_at(y), place(y, n, i), load(type, x.at, place(x, n, i)));
    wrote(y, n, type);
    return ok;
}

int swap(const Handle* handle, Type type, int64_t n, Vector x, Vector y, Site at) {
    const DeviceWork work;
    if (const int bad = begin(handle)) return bad;
    if (!touches(x, n, type, "exchanged", at) || !touches(y, n, type, "exchanged", at))
        return execution_failed;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t left = place(x, n, i), right = place(y, n, i);
        const double kept = load(type, x.at, left);
        store(type, mutable_at(x), left, load(type, y.at, right));
        store(type, mutable_at(y), right, kept);
    }
    return ok;
}

int reduce(const Handle* handle, Type type, Reduction how, int64_t n, Vector x, Vector y,
           void* result, Site at) {
    const DeviceWork work;
    if (const int bad = begin(handle)) return bad;
    if (!result) return invalid_value;
    if (!touches(x, n, type, "read", at)) return execution_failed;
    if (how == Reduction::dot && !touches(y, n, type, "read", at)) return execution_failed;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
        const double value = load(type, x.at, place(x, n, i));
        if (how == Reduction::dot) sum += value * load(type, y.at, place(y, n, i));
        if (how == Reduction::norm) sum += value * value;
        if (how == Reduction::absolute_sum) sum += std::fabs(value);
    }
    store(type, result, 0, how == Reduction::norm ? std::sqrt(sum) : sum);
    mark_written(result, bytes_of(type));
    return ok;
}

int extreme(const Handle* handle, Type type, bool largest, int64_t n, Vector x, int* result,
            Site at) {
    const DeviceWork work;
    if (const int bad = begin(handle)) return bad;
    if (!result) return invalid_value;
    if (!touches(x, n, type, "read", at)) return execution_failed;
    int64_t best = 0;
    double extreme_value = 0;
    for (int64_t i = 0; i < n; ++i) {
        const double value = std::fabs(load(type, x.at, place(x, n, i)));
        if (best && (largest ? value <= extreme_value : value >= extreme_value)) continue;
        best = i + 1;
        extreme_value = value;
    }
    *result = (int)best;
    mark_written(result, sizeof *result);
    return ok;
}

}  // namespace simt::blas
