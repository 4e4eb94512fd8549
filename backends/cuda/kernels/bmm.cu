// Matrix products of a batch: tiles of A and B come into shared memory by cp.async, and warps
// multiply them, by FMA in strict float32 or, for halves, on tensor cores (mma.sync). On Hopper, where
// rows are whole packs, wgmma, fed by the bulk tensor copy engine: of halves, or, in large products, of
// float32 as three of halves. Too few tiles to fill a GPU: several blocks share a tile's depth.
#define FEW_TILES 128  // knob: 64 128 256
#define STAGES 3  // knob: 2 3 4
#define BAND 8  // knob: 4 8 16 32
#define WIDE_FROM 96  // knob: 48 96 192
#define PIPELINE 4  // knob: 2 3 4
#define SPLIT_FROM 500  // knob: 100 500 1000 2000
#define HALVE_FROM 150  // knob: 50 100 150 200 400
#define PAD_FROM 64  // knob: 16 64 256
#include <portkern/padded.h>
#include <portkern/thin_product.h>
#include <portkern/tiled_product.h>

#ifdef PORTKERN_HOPPER
#ifdef PORTKERN_FLOAT32
#include <portkern/split_product.h>
#else
#include <portkern/tile_product.h>
#include <portkern/wide_product.h>
#endif
#endif

// Operands whose rows are whole packs.
int launch_aligned(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m, int64_t n,
                   int64_t k, cudaStream_t stream) {
#ifdef PORTKERN_HOPPER
#ifdef PORTKERN_FLOAT32
    if (split::suits(batch, m, n, k) && double(batch) * m * n * k >= SPLIT_FROM * 1e6)
        return split::launch(a, b, c, batch, m, n, k, stream, [&](const Odd& odd) {
            return tiled::launch<tiled::Large, true, true>(a, b, c, batch, m, n, k, stream, odd);
        });
#else
    const tile::Product all = {batch, m, n, k};
    const bool large = batch * m * n >= (int64_t)WIDE_FROM * 128 * 128 && n > 128 && !tile::one_each(all);
    if (large && wide::suits(batch, m, n, k)) return wide::launch(a, b, c, batch, m, n, k, stream);
    if (tile::suits(all)) return tile::launch(a, b, c, all, stream);
#endif
#endif
    return tiled::launch_tiles<true, true>(a, b, c, batch, m, n, k, stream);
}

extern "C" int bmm(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m,
                   int64_t n, int64_t k, cudaStream_t stream) {
    if (batch == 0 || m == 0 || n == 0) return 0;
    if (thin::is_thin(m, n, k)) return thin::launch<scalar_t>({a, b, c, batch, m, n, k}, stream);
    const bool pointers = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
    if (pointers && n % VEC == 0 && k % VEC == 0) return launch_aligned(a, b, c, batch, m, n, k, stream);
    // Copies with rows of whole packs, where the products take longer than them.
    if (sizeof(scalar_t) == 2 && double(batch) * m * n * k >= PAD_FROM * 1e6)
        return padded::product(a, b, c, batch, m, n, k, stream,
                               [&](auto* a, auto* b, auto* c, int64_t wide, int64_t deep) {
            return launch_aligned(a, b, c, batch, m, wide, deep, stream);
        });
    return tiled::launch_any(a, b, c, batch, m, n, k, stream);
}
