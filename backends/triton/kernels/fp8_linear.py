"""y = x W' with a weight of floats of eight bits (e4m3), unpacked as it is used: its exponent and
mantissa are the upper ones of a float that is 2^120 times too small. Few rows go without a dot,
whose least tile would be empty for the most part; for many, the weight is unpacked once.
Accumulated in float32, without TF32."""

import torch
import triton
import triton.language as tl

BLOCK_M = 128  # knob: 64 128
BLOCK_N = 128  # knob: 64 128
BLOCK_BYTES = 64  # knob: 32 64
BLOCK_F32 = 64  # knob: 32 64
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 3  # knob: 2 3 4
THIN_ROWS = 8  # knob: 4 8 16
THIN_BYTES = 128  # knob: 64 128 256
UNPACK_FROM = 128  # knob: 64 128 256
GROUP = 8  # knob: 4 8 16
# The most rows of x that go without a dot.
THIN = 8


@triton.jit
def _floats(packed, at, mask):
    bits = tl.load(packed + at, mask=mask, other=0).to(tl.int32)
    size = bits & 127
    small = (((bits & 128) << 24) | (size << 20)).to(tl.float32, bitcast=True)
    return tl.where(size == 127, float("nan"), small * 1.329227995784916e36)


@triton.jit
def _weights(packed, scale, col, byte, groups, bytes, n, ALONE: tl.constexpr, kind: tl.constexpr):
    """Elements of rows of the weight, with 0 behind the row. ALONE: all are of one group."""
    size = groups * bytes
    mask = (col < n) & (byte < size)
    value = _floats(packed, col.to(tl.int64) * size + byte, mask)
    if ALONE:
        group = col * groups + tl.min(byte) // bytes
        step = tl.load(scale + group, mask=col < n, other=0.0).to(tl.float32)
    else:
        group = col * groups + byte // bytes
        step = tl.load(scale + group, mask=mask, other=0.0).to(tl.float32)
    return (value * step).to(kind)


@triton.jit
def _tiles(
    x,
    packed,
    scale,
    y,
    m,
    n,
    groups,
    bytes,
    ALONE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    BYTES: tl.constexpr,
):
    size, tiles_n = groups * bytes, tl.cdiv(n, N)
    row = tl.program_id(0) // tiles_n * M + tl.arange(0, M)[:, None]
    col = tl.program_id(0) % tiles_n * N + tl.arange(0, N)[None, :]
    own = x + row.to(tl.int64) * size
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, size, BYTES):
        byte = start + tl.arange(0, BYTES)
        kind = x.dtype.element_ty
        weight = _weights(packed, scale, col, byte[:, None], groups, bytes, n, ALONE, kind)
        mask = (row < m) & (byte < size)[None, :]
        left = tl.load(own + byte[None, :], mask=mask, other=0.0)
        total = tl.dot(left, weight, total, input_precision="ieee")
    target = y + row.to(tl.int64) * n + col
    tl.store(target, total.to(y.dtype.element_ty), mask=(row < m) & (col < n))


@triton.jit
def _unpack(packed, scale, weight, count, bytes, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    step = tl.load(scale + at // bytes, mask=mask, other=0.0).to(tl.float32)
    value = _floats(packed, at, mask) * step
    tl.store(weight + at, value.to(weight.dtype.element_ty), mask=mask)


@triton.jit
def _unpacked_tiles(
    x, weight, y, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    """GROUP rows of tiles are walked column by column, so that their operands stay in the L2."""
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    group, within = tl.program_id(0) // (GROUP * tiles_n), tl.program_id(0) % (GROUP * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP, GROUP)
    first_row = (group * GROUP + within % height) * M
    first_col = within // height * N
    row, col, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    in_rows, in_cols = (row < m - first_row)[:, None], (col < n - first_col)[None, :]
    x_tile = x + first_row.to(tl.int64) * k + row.to(tl.int64)[:, None] * k + depth[None, :]
    weight_tile = weight + first_col.to(tl.int64) * k
    weight_tile += col.to(tl.int64)[None, :] * k + depth[:, None]
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        left = k - start
        x_value = tl.load(x_tile, mask=in_rows & (depth < left)[None, :], other=0.0)
        weight_value = tl.load(weight_tile, mask=(depth < left)[:, None] & in_cols, other=0.0)
        total = tl.dot(x_value, weight_value, total, input_precision="ieee")
        x_tile += K
        weight_tile += K
    target = y + first_row.to(tl.int64) * n + first_col
    target += row.to(tl.int64)[:, None] * n + col[None, :]
    tl.store(target, total.to(y.dtype.element_ty), mask=in_rows & in_cols)


@triton.jit
def _thin(
    x,
    packed,
    scale,
    y,
    m,
    n,
    groups,
    bytes,
    ALONE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    BYTES: tl.constexpr,
):
    """Each lane multiplies at places of its own in the depth, which are added up at the end."""
    size = groups * bytes
    row = tl.arange(0, M)[:, None, None]
    col = tl.program_id(0) * N + tl.arange(0, N)[:, None]
    total = tl.zeros((M, N, BYTES), tl.float32)
    for start in range(0, size, BYTES):
        byte = start + tl.arange(0, BYTES)[None, :]
        weight = _weights(packed, scale, col, byte, groups, bytes, n, ALONE, tl.float32)
        at, mask = x + row * size + byte[None, :, :], (row < m) & (byte < size)[None, :, :]
        total += tl.load(at, mask=mask, other=0.0).to(tl.float32) * weight[None, :, :]
    result = tl.sum(total, axis=2)[:, :, None]
    target = y + row * n + col[None, :, :]
    tl.store(target, result.to(y.dtype.element_ty), mask=(row < m) & (col < n)[None, :, :])


def _fit(length, block):
    """A smaller block for a smaller matrix; 16 is the least that every dot unit takes."""
    return max(16, min(block, triton.next_power_of_2(length)))


def fp8_linear(x, packed, scale, y):
    m, n = y.shape
    groups, bytes = packed.shape[1:]
    if y.numel() == 0:
        return
    alone = max(bytes & -bytes, 1)  # so many bytes from a group's beginning are all of it
    if m <= THIN:
        deep = min(THIN_BYTES, max(16, alone))
        grid = (triton.cdiv(n, THIN_ROWS),)
        given = (x, packed, scale, y, m, n, groups, bytes, alone >= deep)
        _thin[grid](*given, triton.next_power_of_2(m), THIN_ROWS, deep, num_warps=4)
        return
    wide = x.element_size() == 4
    tile_m = _fit(m, BLOCK_F32 if wide else BLOCK_M)
    tile_n = _fit(n, BLOCK_F32 if wide else BLOCK_N)
    warps = NUM_WARPS if tile_m * tile_n >= 8192 else 4
    options = {"num_warps": warps, "num_stages": NUM_STAGES}
    grid = (triton.cdiv(m, tile_m) * triton.cdiv(n, tile_n),)
    if m >= UNPACK_FROM and not wide and packed.numel():
        weight = torch.empty((n, groups * bytes), dtype=x.dtype, device=x.device)
        count, block = packed.numel(), 2048
        _unpack[(triton.cdiv(count, block),)](packed, scale, weight, count, bytes, BLOCK=block)
        shape = (m, n, groups * bytes, tile_m, tile_n, BLOCK_BYTES, GROUP)
        _unpacked_tiles[grid](x, weight, y, *shape, **options)
        return
    deep = min(BLOCK_BYTES // 2 if wide else BLOCK_BYTES, max(16, alone))
    given = (x, packed, scale, y, m, n, groups, bytes, alone >= deep)
    _tiles[grid](*given, tile_m, tile_n, deep, **options)
