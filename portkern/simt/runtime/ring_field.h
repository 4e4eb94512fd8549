// Arithmetic of the ring that arithmetic=ring puts in the place of floating point: the field of
// p * p elements, complex numbers a + bi modulo a prime p of 4n + 3, for two primes at once.
#pragma once
#include <cstdint>

namespace simt::ring {

using Wide = unsigned __int128;

// Numbers modulo an odd prime below 2^63, kept as x * 2^64 mod p (Montgomery, 1985), so that a
// product needs no division.
struct Prime {
    uint64_t p = 0, inverse = 0, one = 0, square = 0;  // -1/p mod 2^64, 2^64 mod p, 2^128 mod p

    constexpr Prime() = default;
    explicit Prime(uint64_t p) : p(p) {
        uint64_t x = p;  // an inverse mod 8; each step doubles the good bits
        for (int i = 0; i < 5; ++i) x *= 2 - p * x;
        inverse = 0 - x;
        one = (uint64_t)(((Wide)1 << 64) % p);
        square = (uint64_t)((Wide)one * one % p);
    }
    uint64_t reduce(Wide t) const {
        const uint64_t m = (uint64_t)t * inverse;
        const uint64_t r = (uint64_t)((t + (Wide)m * p) >> 64);
        return r >= p ? r - p : r;
    }
    uint64_t of(uint64_t x) const { return reduce((Wide)(x % p) * square); }
    uint64_t plain(uint64_t x) const { return reduce(x); }
    uint64_t mul(uint64_t a, uint64_t b) const { return reduce((Wide)a * b); }
    uint64_t add(uint64_t a, uint64_t b) const { return a + b >= p ? a + b - p : a + b; }
    uint64_t sub(uint64_t a, uint64_t b) const { return a >= b ? a - b : a + p - b; }
    uint64_t neg(uint64_t a) const { return a ? p - a : 0; }
    uint64_t power(uint64_t a, uint64_t n) const {
        uint64_t result = one;
        for (; n; n >>= 1, a = mul(a, a))
            if (n & 1) result = mul(result, a);
        return result;
    }
    uint64_t inverted(uint64_t a) const { return power(a, p - 2); }
    // One of a's square roots, or of -a's: exactly one of the two has some, as p is 4n + 3.
    uint64_t root(uint64_t a) const { return power(a, (p + 1) / 4); }
};

struct Residue {
    uint64_t re = 0, im = 0;
    bool operator==(const Residue& o) const { return re == o.re && im == o.im; }
    bool zero() const { return !(re | im); }
};

struct Field : Prime {
    using Prime::Prime;

    Residue plus(Residue a, Residue b) const { return {add(a.re, b.re), add(a.im, b.im)}; }
    Residue minus(Residue a, Residue b) const { return {sub(a.re, b.re), sub(a.im, b.im)}; }
    Residue negated(Residue a) const { return {neg(a.re), neg(a.im)}; }
    Residue times(Residue a, Residue b) const {
        if (!(a.im | b.im)) return {mul(a.re, b.re), 0};
        return {sub(mul(a.re, b.re), mul(a.im, b.im)), add(mul(a.re, b.im), mul(a.im, b.re))};
    }
    Residue reciprocal(Residue a) const {  // 0 of 0
        if (!a.im) return {inverted(a.re), 0};
        const uint64_t norm = inverted(add(mul(a.re, a.re), mul(a.im, a.im)));
        return {mul(a.re, norm), neg(mul(a.im, norm))};
    }
    Residue from(uint64_t x) const { return {of(x), 0}; }
    // A square root, if there is one: of all numbers without an imaginary part, and half of others.
    bool root_of(Residue a, Residue& to) const {
        if (!a.im) {
            const uint64_t r = root(a.re);
            to = mul(r, r) == a.re ? Residue{r, 0} : Residue{0, r};
            return true;
        }
        const uint64_t norm = add(mul(a.re, a.re), mul(a.im, a.im)), size = root(norm);
        if (mul(size, size) != norm) return false;
        const uint64_t half = inverted(of(2));
        uint64_t square = mul(add(a.re, size), half), re = root(square);
        if (mul(re, re) != square) re = root(square = mul(sub(a.re, size), half));
        to = {re, mul(mul(a.im, half), inverted(re))};
        return mul(re, re) == square;
    }
};

}  // namespace simt::ring
