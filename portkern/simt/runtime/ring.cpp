// The table of elements, and the patterns of each format.
#include "ring.h"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "ring_state.h"

namespace simt::ring {

Account account;
State state;

namespace {

constexpr uint32_t none = 0xffffffff;
constexpr uint32_t most_elements = 8000000;
constexpr uint32_t chunk = 1 << 16;

struct Element {
    Residue flat, deep;
    double shadow;
    bool has_flat;
    uint8_t dumped[4];  // 2 with its flat residue
    uint16_t narrow[2];  // the pattern in f16 and bf16; 0: none yet
};

// ---- patterns

struct Layout {
    int mantissa, exponents;  // bits
    uint64_t sign, infinity, nan, other_nan;
};
constexpr Layout layouts[] = {
    {10, 5, 0x8000, 0x7c00, 0x7e00, 0x7fff},
    {7, 8, 0x8000, 0x7f80, 0x7fc0, 0x7fff},
    {23, 8, 0x80000000u, 0x7f800000u, 0x7fc00000u, 0x7fffffffu},
    {52, 11, 1ull << 63, 0x7ffull << 52, 0x7ff8ull << 48, ~0ull >> 1},
};
const Layout& of(Format f) { return layouts[(int)f]; }

// Of float32 and float64: the k-th NaN, whose payloads lie scattered so that arithmetic on bits
// hardly ever leads from one to another.
constexpr uint64_t spread = 0x5DEECE66Dull | 1, tag = 0x5A3ull << 40;
constexpr uint64_t inverse_of(uint64_t a) {
    uint64_t x = a;
    for (int i = 0; i < 6; ++i) x *= 2 - a * x;
    return x;
}
constexpr uint64_t gathered = inverse_of(spread);
constexpr uint64_t low23 = (1 << 23) - 1, low40 = (1ull << 40) - 1;

uint64_t wide_pattern(Format f, uint32_t k) {  // 0: not to be used
    const uint64_t scattered = (k + 1ull) * spread;
    if (f == Format::f64) return of(f).infinity | tag | (scattered & low40);
    const uint64_t bits = of(f).infinity | (scattered & low23);
    return bits == of(f).nan || bits == of(f).other_nan ? 0 : bits;
}
// One lock for all: a launch's blocks run on several threads.
struct Lock {
    static std::atomic_flag& flag() {
        static std::atomic_flag held = ATOMIC_FLAG_INIT;
        return held;
    }
    Lock() {
        while (flag().test_and_set(std::memory_order_acquire)) {}
    }
    ~Lock() { flag().clear(std::memory_order_release); }
};

struct Table {
    std::unique_ptr<Element[]> chunks[most_elements / chunk + 1];
    uint32_t count = 0;
    std::vector<uint32_t> slots = std::vector<uint32_t>(1 << 16, none);

    Element& at(uint32_t k) { return chunks[k / chunk][k % chunk]; }

    uint32_t& slot_of(const Value& v) {
        const size_t mask = slots.size() - 1;
        size_t i = (v.deep.re ^ v.deep.im * 0x9E3779B97F4A7C15ull) * 0xD6E8FEB86659FD93ull >> 20;
        for (;; ++i) {
            uint32_t& k = slots[i & mask];
            if (k == none) return k;
            const Element& e = at(k);
            if (e.deep == v.deep && (!e.has_flat || !v.has_flat || e.flat == v.flat)) return k;
        }
    }
    // The number of an element that is positive by its shadow, or `none` where the table is full.
    uint32_t of(const Value& v) {
        uint32_t& k = slot_of(v);
        if (k != none) {
            Element& e = at(k);
            if (v.has_flat && !e.has_flat) e.flat = v.flat, e.has_flat = true;
            return k;
        }
        while (count < most_elements && !wide_pattern(Format::f32, count)) ++count;
        if (count == most_elements) return none;
        const uint32_t made = count++;
        if (!chunks[made / chunk]) chunks[made / chunk].reset(new Element[chunk]());
        at(made) = Element{v.flat, v.deep, v.shadow, v.has_flat, {}, {}};
        k = made;
        if (count * 2 > slots.size()) grow();
        return made;
    }
    void grow() {
        std::vector<uint32_t> before(slots.size() * 2, none);
        before.swap(slots);
        for (uint32_t k : before) {
            if (k == none) continue;
            const Element& e = at(k);
            Value v;
            v.flat = e.flat, v.deep = e.deep, v.has_flat = e.has_flat;
            slot_of(v) = k;
        }
    }
};
Table& table() {
    static auto* all = new Table;
    return *all;
}

// ---- numbers that stand for themselves

struct Powers {  // of 2, modulo each prime
    static constexpr int least = -1130, most = 1100;
    uint64_t flat[most - least + 1], deep[most - least + 1];

    static void fill(const Field& f, uint64_t* to) {
        const uint64_t half = f.inverted(f.of(2));
        to[-least] = f.one;
        for (int e = 1; e <= most; ++e) to[e - least] = f.add(to[e - 1 - least], to[e - 1 - least]);
        for (int e = -1; e >= least; --e) to[e - least] = f.mul(to[e + 1 - least], half);
    }
};
Powers powers;

// ---- which pattern is which element's

uint32_t wide_number(Format f, uint64_t size) {
    uint64_t k = f == Format::f64 ? (size & low40) * gathered & low40 : (size & low23) * gathered & low23;
    if (f == Format::f64 && (size & ~low40) != (of(f).infinity | tag)) return none;
    return k && k <= table().count ? (uint32_t)(k - 1) : none;
}

// In 16 bits the NaNs are too few: numbers of unusual size stand for elements as well, but for those
// that were read before they did.
struct Narrow {
    std::vector<uint16_t> free;  // the last first
    std::vector<uint32_t> number = std::vector<uint32_t>(1 << 15, none);
    std::vector<bool> reserved = std::vector<bool>(1 << 15), plain = std::vector<bool>(1 << 15);

    explicit Narrow(Format f) {
        const Layout& l = of(f);
        const unsigned last = (1u << l.exponents) - 1;
        const unsigned low = f == Format::f16 ? 4 : 86, high = f == Format::f16 ? 24 : 168;
        for (unsigned i = 0; i < 1 << 15; ++i) {
            const unsigned bits = i * 0x4E6Du & 0x7fff, exponent = bits >> l.mantissa;
            const unsigned rest = bits & ((1u << l.mantissa) - 1);
            const bool common = bits <= 1 || bits == 1u << l.mantissa || bits == l.infinity ||
                                bits == l.infinity - 1 || bits == l.nan || bits == l.other_nan;
            if (common || (exponent > low && exponent < high)) continue;
            if (exponent == last && !rest) continue;
            reserved[bits] = true;
            free.push_back((uint16_t)bits);
        }
    }
};
Narrow& narrow(Format f) {
    static auto* half = new Narrow(Format::f16);
    static auto* brain = new Narrow(Format::bf16);
    return f == Format::f16 ? *half : *brain;
}
bool is_narrow(Format f) { return f == Format::f16 || f == Format::bf16; }

uint64_t pattern_of(Format f, uint32_t k) {  // 0: there is none
    if (!is_narrow(f)) return wide_pattern(f, k);
    Narrow& n = narrow(f);
    uint16_t& own = table().at(k).narrow[(int)f];
    while (!own && !n.free.empty()) {
        const uint16_t bits = n.free.back();
        n.free.pop_back();
        if (n.plain[bits]) continue;
        n.number[bits] = k;
        own = bits;
    }
    return own;
}
uint32_t number_of(Format f, uint64_t size) {
    return is_narrow(f) ? narrow(f).number[size] : wide_number(f, size);
}
bool is_reserved(Format f, uint64_t size) {
    return is_narrow(f) ? narrow(f).reserved[size] : size > of(f).infinity;
}

uint32_t inputs;  // elements below this number were there when the launch began

Value from_element(uint32_t k, bool negative) {
    Element& e = table().at(k);
    if (!e.has_flat && k < inputs) {
        e.flat = state.flat.from(scattered(e.deep.re ^ scattered(e.deep.im ^ state.seed)));
        e.has_flat = true;
    }
    Value v;
    v.flat = e.flat, v.deep = e.deep, v.has_flat = e.has_flat, v.shadow = e.shadow;
    return negative ? negated(v) : v;
}

// The number that a pattern is in its own format.
double plain_of(Format f, uint64_t size) {
    const Layout& l = of(f);
    const int exponent = (int)(size >> l.mantissa), bias = (1 << (l.exponents - 1)) - 1;
    const uint64_t digits = size & ((1ull << l.mantissa) - 1);
    if (exponent == (1 << l.exponents) - 1)
        return digits ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL;
    const uint64_t all = exponent ? digits | 1ull << l.mantissa : digits;
    return std::ldexp((double)all, (exponent ? exponent : 1) - bias - l.mantissa);
}

// The pattern of x, if the format has x exactly; else all ones.
uint64_t exactly(Format f, double x) {
    const Layout& l = of(f);
    uint64_t bits;
    memcpy(&bits, &x, 8);
    const uint64_t size = bits & ~(1ull << 63);
    if (f == Format::f64) return size;
    const int exponent = (int)(size >> 52) - 1023, bias = (1 << (l.exponents - 1)) - 1;
    const uint64_t digits = size & ((1ull << 52) - 1);
    if (exponent < 1 - bias || exponent > bias || digits & ((1ull << (52 - l.mantissa)) - 1))
        return ~0ull;
    return (uint64_t)(exponent + bias) << l.mantissa | digits >> (52 - l.mantissa);
}

double rounded(Format f, double x) {  // far enough to be found again
    if (f == Format::f32) return (float)x;
    if (f == Format::f64) return x;
    int exponent;
    const double m = std::frexp(x, &exponent);
    const int digits = of(f).mantissa + 1;
    return std::ldexp(std::nearbyint(std::ldexp(m, digits)), exponent - digits);
}

// Infinities by their sign, once a literal or an operation has made one. Another is what is left of
// an element whose digits the program has cleared.
std::atomic<bool> has_infinity[2];

bool is_number(const Value& v, double x) {
    const Value w = number(x);
    return w.deep == v.deep && (!v.has_flat || w.flat == v.flat);
}

}  // namespace

Value number(double x) {
    Value v;
    v.shadow = x;
    v.finite = std::isfinite(x);
    if (!v.finite || x == 0) return v;
    int exponent;
    const double m = std::frexp(std::fabs(x), &exponent);
    v.shadow = std::fabs(x);
    const uint64_t digits = (uint64_t)std::ldexp(m, 53);
    const int at = exponent - 53 - Powers::least;
    v.flat.re = state.flat.mul(state.flat.of(digits), powers.flat[at]);
    v.deep.re = state.deep.mul(state.deep.of(digits), powers.deep[at]);
    return x < 0 ? negated(v) : v;
}

Value negated(const Value& v) {
    Value r = v;
    r.flat = state.flat.negated(v.flat);
    r.deep = state.deep.negated(v.deep);
    r.shadow = -v.shadow;
    return r;
}

Value read(Format f, uint64_t bits) {
    const uint64_t size = bits & (of(f).sign - 1);
    const bool negative = bits & of(f).sign;
    if (!size) return Value{};
    if (is_reserved(f, size)) {
        Lock lock;
        const uint32_t k = number_of(f, size);
        if (k != none) return from_element(k, negative);
        if (size > of(f).infinity) {
            if (size != of(f).nan && size != of(f).other_nan) ++account.bits;
        } else if (is_narrow(f)) {
            narrow(f).plain[size] = true;
        }
    }
    if (size == of(f).infinity && !has_infinity[negative]) ++account.bits;
    const double x = plain_of(f, size);
    return number(negative ? -x : x);
}

void note_infinity(bool negative) { has_infinity[negative] = true; }

uint64_t written(Format f, const Value& v) {
    const Layout& l = of(f);
    const uint64_t minus = std::signbit(v.shadow) ? l.sign : 0;
    if (!v.finite) {
        if (v.shadow != v.shadow) return l.nan;
        if (!account.bits) note_infinity(minus);  // else it may come of what was read so
        return l.infinity | minus;
    }
    if (v.zero()) return 0;
    const double near = rounded(f, v.shadow);
    if (near != 0 && std::isfinite(near)) {
        const uint64_t bits = exactly(f, near);
        if (bits != ~0ull && !is_reserved(f, bits) && is_number(v, near)) return bits | minus;
    }
    // Opposite elements share a pattern. A shadow of 0 has no sign: the residue decides.
    const bool negative = v.shadow != 0 ? v.shadow < 0 : v.deep.re > state.deep.neg(v.deep.re);
    Lock lock;
    const uint32_t k = table().of(negative ? negated(v) : v);
    uint64_t pattern = k == none ? 0 : pattern_of(f, k);
    if (!pattern) {
        ++account.full;
        return l.nan;
    }
    return pattern | (negative ? l.sign : 0);
}

bool active() { return state.active; }

void begin_launch() {
    const uint64_t full = account.full;  // what got no pattern before may be among the inputs
    account = {};
    account.full = full;
    inputs = table().count;
}

uint64_t scattered(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

bool begin(const char* parameters) {
    unsigned long long p, q, g, h, seed;
    if (sscanf(parameters, "%llu,%llu,%llu,%llu,%llu", &p, &q, &g, &h, &seed) != 5) return false;
    if (p < 3 || q >> 63 || p % 4 != 3 || q % 4 != 3 || (q - 1) % p) return false;
    state.flat = Field(p), state.deep = Field(q);
    state.base = state.deep.of(g), state.turn = state.deep.of(h), state.seed = seed;
    Powers::fill(state.flat, powers.flat);
    Powers::fill(state.deep, powers.deep);
    state.active = true;
    return true;
}

// ---- for the recording

namespace {

struct Dumped {  // ring_recording.py reads it
    uint32_t format, has_flat;
    uint64_t pattern, flat_re, flat_im, deep_re, deep_im;
    double shadow;
};

void dump(Format f, uint64_t size, std::string& to) {
    const uint32_t k = size ? number_of(f, size) : none;
    if (k == none || !is_reserved(f, size)) return;
    Element& e = table().at(k);
    if (e.dumped[(int)f] == e.has_flat + 1) return;
    e.dumped[(int)f] = (uint8_t)(e.has_flat + 1);
    const Field &p = state.flat, &q = state.deep;
    const Dumped d{(uint32_t)f, e.has_flat, size, p.plain(e.flat.re), p.plain(e.flat.im),
                   q.plain(e.deep.re), q.plain(e.deep.im), e.shadow};
    to.append(reinterpret_cast<const char*>(&d), sizeof d);
}

template <class Word>
void each(const char* bytes, size_t size, Format f, std::string& to) {
    for (size_t i = 0; i + sizeof(Word) <= size; i += sizeof(Word)) {
        Word word;
        memcpy(&word, bytes + i, sizeof word);
        dump(f, word & (of(f).sign - 1), to);
    }
}

}  // namespace

void append_elements(const char* bytes, size_t size, std::string& to) {
    Lock lock;
    each<uint64_t>(bytes, size, Format::f64, to);
    each<uint32_t>(bytes, size, Format::f32, to);
    each<uint16_t>(bytes, size, Format::f16, to);
    each<uint16_t>(bytes, size, Format::bf16, to);
}

std::string account_json() {
    const Account a = account;
    account = {};
    account.full = a.full;
    char text[256];
    snprintf(text, sizeof text, "[%llu, %llu, %llu, %llu, %llu, %llu, %llu]",
             (unsigned long long)a.comparisons, (unsigned long long)a.close,
             (unsigned long long)a.integers, (unsigned long long)a.functions,
             (unsigned long long)a.bits, (unsigned long long)a.full, (unsigned long long)a.lost);
    return text;
}

}  // namespace simt::ring
