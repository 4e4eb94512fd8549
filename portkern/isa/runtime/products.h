// Products of narrow floats and their sums as matrix units round them, by what is published of CDNA2
// and CDNA3 (MMA-Sim compared its model with such chips bit by bit). Loops run over the columns of a
// row, so that they vectorise.
#pragma once
#include <algorithm>

#include "wave.h"

namespace isa {

inline double power_of_two(int e) { return as<double>((u64)(i64)(1023 + e) << 52); }

// CDNA2: denormals count as zero before and after each step; `AT_ONCE` products are added in pairs,
// each sum rounded, and then to what was there.
template <int M, int N, int K, int AT_ONCE>
void flushed_products(const float (&a)[K][M], const float (&b)[K][N], float (&c)[M][N],
                      float least_factor) {
    const auto factor = [&](float x) { return std::fabs(x) < least_factor ? 0.f : x; };
    const auto flushed = [](float x) {
        return std::fabs(x) < 0x1p-126f ? std::copysign(0.f, x) : x;
    };
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n)
            if (std::fabs(c[m][n]) < 0x1p-126f) c[m][n] = 0;
    for (int k = 0; k < K; k += AT_ONCE)
        for (int m = 0; m < M; ++m)
            for (int n = 0; n < N; ++n) {
                const auto product = [&](int j) {
                    return flushed(factor(a[k + j][m]) * factor(b[k + j][n]));
                };
                float sum = flushed(product(0) + product(1));
                if constexpr (AT_ONCE == 4)
                    sum = flushed(sum + flushed(product(2) + product(3)));
                c[m][n] = flushed(c[m][n] + sum);
            }
}

// CDNA3 (and CDNA4, of which nothing is published): `L` products at once. They are cut off 24 bits
// below the greatest exponent among them, towards zero, and added exactly; with what was there the
// sum is cut off 32 and 24 bits below, downwards, and what comes out 31 bits below its first, before
// it is rounded to the nearest. Of 8 bits the even and the odd products have a sum of their own
// (`PARTS`), and what was there counts nothing where it is too small.
template <int M, int N, int K, int L, int PARTS>
void truncated_products(const float (&a)[K][M], const float (&b)[K][N], float (&c)[M][N],
                        int least_a, int least_b) {
    constexpr int CUT = 24, KEPT = 31, NOTHING = -999;
    alignas(64) static thread_local i32 ea[K][M], eb[K][N];
    const auto exponent = [](float x, int least) {
        const int e = (int)(bits(x) >> 23 & 255) - 127;
        return x == 0 ? 2 * NOTHING : e < least ? least : e;
    };
    for (int k = 0; k < K; ++k) {
        for (int m = 0; m < M; ++m) ea[k][m] = exponent(a[k][m], least_a);
        for (int n = 0; n < N; ++n) eb[k][n] = exponent(b[k][n], least_b);
    }
    for (int first = 0; first < K; first += L)
        for (int m = 0; m < M; ++m) {
            alignas(64) i32 top[PARTS][N];
            alignas(64) double sum[PARTS][N];
            for (int part = 0; part < PARTS; ++part) {
                for (int n = 0; n < N; ++n) top[part][n] = NOTHING, sum[part][n] = 0;
                for (int k = first + part; k < first + L; k += PARTS)
                    for (int n = 0; n < N; ++n)
                        top[part][n] = std::max(top[part][n], ea[k][m] + eb[k][n]);
                for (int k = first + part; k < first + L; k += PARTS)
                    for (int n = 0; n < N; ++n) {
                        double x = (double)a[k][m] * b[k][n];
                        x = std::fabs(x) < 0x1p128 ? x : x * (double)INFINITY;
                        sum[part][n] += std::trunc(x * power_of_two(CUT - top[part][n]));
                    }
            }
            for (int n = 0; n < N; ++n) {
                int of_dot = top[0][n];
                double dot = sum[0][n];
                if constexpr (PARTS == 2) {
                    of_dot = std::max(of_dot, top[1][n]);
                    const auto cut = [&](int part) {
                        const int below = std::max(top[part][n] - of_dot, -1000);
                        return std::floor(sum[part][n] * power_of_two(below));
                    };
                    dot = cut(0) + cut(1);
                }
                const float old = c[m][n];
                const int of_old = std::max((int)(bits(old) >> 23 & 255) - 127, -126);
                const int e = std::max(of_dot, of_old);
                // In units of 2^(e - KEPT - 1).
                const int below = std::max(of_dot - e + KEPT + 1 - CUT, -1000);
                double kept = std::floor((double)old * power_of_two(CUT - e));
                if (PARTS == 2 && of_old < e - CUT - 1) kept = 0;
                const double units =
                    std::floor(dot * power_of_two(below)) + kept * power_of_two(KEPT + 1 - CUT);
                const double all = units * power_of_two(e - KEPT - 1);
                const int of_all =
                    std::max((int)(as<u64>(all) >> 52 & 2047) - 1023, -126);
                const double cut = std::floor(all * power_of_two(KEPT - of_all));
                c[m][n] = std::fabs(all) < (double)INFINITY
                              ? (float)(cut * power_of_two(of_all - KEPT))
                              : (float)all;
            }
        }
}

}  // namespace isa
