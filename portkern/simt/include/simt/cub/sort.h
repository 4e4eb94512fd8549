// cub's radix sort of a block, and the keys that a radix sort can order.
#pragma once
#include "block.h"

namespace simt {

// A key as an unsigned number of the same order: the sign of integers is flipped; negative floats
// are inverted, and -0 sorts as +0. Classes of two bytes are float16 or bfloat16.
template <class K>
struct RadixKey {
    using Bits = Word<sizeof(K)>;
    static constexpr Bits sign = (Bits)((Bits)1 << (sizeof(K) * 8 - 1));
    static constexpr bool real =
        std::is_floating_point<K>::value || (std::is_class<K>::value && sizeof(K) == 2);
    static_assert(std::is_arithmetic<K>::value || real, "radix sort orders numbers");

    static Bits order(const K& key) {
        Bits bits = same_bits<Bits>(key);
        if constexpr (real) {
            if (bits == sign) bits = 0;
            return bits & sign ? (Bits)~bits : (Bits)(bits | sign);
        } else if constexpr (std::is_signed<K>::value) {
            return bits ^ sign;
        } else {
            return bits;
        }
    }
    static unsigned digit(const K& key, int begin, int bits, bool descending) {
        const Bits number = descending ? (Bits)~order(key) : order(key);
        return (unsigned)(number >> begin) & ((1u << bits) - 1);
    }
};

}  // namespace simt

namespace SIMT_CUB {

// Stable; a pass per RADIX_BITS counts digits per thread, scans the counts and scatters.
template <class K, int BLOCK_DIM_X, int ITEMS, class V = NullType, int RADIX_BITS = 4,
          bool = true, BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS, int = 0, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1, int = 0>
class BlockRadixSort {
    using Block = simt::BlockShape<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    using Scan = BlockScan<unsigned, BLOCK_DIM_X, BLOCK_SCAN_WARP_SCANS, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    using KeyExchange = BlockExchange<K, BLOCK_DIM_X, ITEMS, false, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    using ValueExchange = BlockExchange<V, BLOCK_DIM_X, ITEMS, false, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    static constexpr int digits = 1 << RADIX_BITS;
    static constexpr bool keys_only = std::is_same<V, NullType>::value;
    static constexpr int all_bits = sizeof(K) * 8;
    static_assert(Block::threads * ITEMS <= 65535, "counts have 16 bits");
    struct Ranking {
        uint16_t counts[digits * Block::threads];  // of digit d in thread t: [d * threads + t]
        typename Scan::TempStorage scan;
    };
    union Phases {
        Uninitialized<Ranking> ranking;
        typename KeyExchange::TempStorage keys;
        std::conditional_t<keys_only, char, typename ValueExchange::TempStorage> values;
    };

  public:
    struct TempStorage : Uninitialized<Phases> {};
    explicit BlockRadixSort(SIMT_AT) : phases_(simt::private_storage<TempStorage>(at).Alias()) {}
    explicit BlockRadixSort(TempStorage& storage) : phases_(storage.Alias()) {}

    void Sort(K (&keys)[ITEMS], int begin = 0, int end = all_bits, SIMT_AT) {
        sort(keys, nothing_, begin, end, false, false, at);
    }
    void Sort(K (&keys)[ITEMS], V (&values)[ITEMS], int begin = 0, int end = all_bits, SIMT_AT) {
        sort(keys, values, begin, end, false, false, at);
    }
    void SortDescending(K (&keys)[ITEMS], int begin = 0, int end = all_bits, SIMT_AT) {
        sort(keys, nothing_, begin, end, true, false, at);
    }
    void SortDescending(K (&keys)[ITEMS], V (&values)[ITEMS], int begin = 0, int end = all_bits,
                        SIMT_AT) {
        sort(keys, values, begin, end, true, false, at);
    }
    void SortBlockedToStriped(K (&keys)[ITEMS], int begin = 0, int end = all_bits, SIMT_AT) {
        sort(keys, nothing_, begin, end, false, true, at);
    }
    void SortBlockedToStriped(K (&keys)[ITEMS], V (&values)[ITEMS], int begin = 0,
                              int end = all_bits, SIMT_AT) {
        sort(keys, values, begin, end, false, true, at);
    }
    void SortDescendingBlockedToStriped(K (&keys)[ITEMS], int begin = 0, int end = all_bits,
                                        SIMT_AT) {
        sort(keys, nothing_, begin, end, true, true, at);
    }
    void SortDescendingBlockedToStriped(K (&keys)[ITEMS], V (&values)[ITEMS], int begin = 0,
                                        int end = all_bits, SIMT_AT) {
        sort(keys, values, begin, end, true, true, at);
    }

  private:
    Phases& phases_;
    V nothing_[ITEMS];

    void sort(K (&keys)[ITEMS], V (&values)[ITEMS], int begin, int end, bool descending,
              bool striped, simt::Site at) {
        for (; begin < end; begin += RADIX_BITS) {
            const int bits = end - begin < RADIX_BITS ? end - begin : RADIX_BITS;
            const bool last = begin + RADIX_BITS >= end;
            int ranks[ITEMS];
            rank(keys, ranks, begin, bits, descending, at);
            simt::block_barrier(at);
            scatter(KeyExchange(phases_.keys), keys, ranks, last && striped, at);
            if constexpr (!keys_only) {
                simt::block_barrier(at);
                scatter(ValueExchange(phases_.values), values, ranks, last && striped, at);
            }
            if (!last) simt::block_barrier(at);
        }
    }

    template <class Exchange, class T>
    static void scatter(Exchange exchange, T (&items)[ITEMS], int (&ranks)[ITEMS], bool striped,
                        simt::Site at) {
        if (striped) exchange.ScatterToStriped(items, items, ranks, at);
        else exchange.ScatterToBlocked(items, items, ranks, at);
    }

    void rank(K (&keys)[ITEMS], int (&ranks)[ITEMS], int begin, int bits, bool descending,
              simt::Site at) {
        Ranking& r = phases_.ranking.Alias();
        const int thread = (int)Block::thread();
        unsigned digit[ITEMS];
        for (int d = 0; d < digits; ++d) r.counts[d * Block::threads + thread] = 0;
        for (int i = 0; i < ITEMS; ++i) {
            digit[i] = simt::RadixKey<K>::digit(keys[i], begin, bits, descending);
            ranks[i] = r.counts[(int)digit[i] * Block::threads + thread]++;
        }
        simt::block_barrier(at);
        scan_counts(r, at);
        simt::block_barrier(at);
        for (int i = 0; i < ITEMS; ++i)
            ranks[i] += r.counts[(int)digit[i] * Block::threads + thread];
    }

    // Each count becomes the sum of those before it; a thread does `digits` neighbours.
    static void scan_counts(Ranking& r, simt::Site at) {
        uint16_t* mine = r.counts + (int)Block::thread() * digits;
        unsigned total = 0, before = 0;
        for (int d = 0; d < digits; ++d) total += mine[d];
        Scan(r.scan).ExclusiveSum(total, before, at);
        for (int d = 0; d < digits; ++d) {
            const unsigned count = mine[d];
            mine[d] = (uint16_t)before;
            before += count;
        }
    }
};

}  // namespace SIMT_CUB
