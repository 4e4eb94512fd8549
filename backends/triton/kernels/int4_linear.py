"""y = x W' with a weight of four bits, unpacked as it is used: the first elements of all bytes meet
every second one of x, and so do the other ones. Few rows go without a dot, whose least tile would
be empty for the most part; for many, the weight is unpacked once. Accumulated in float32, without
TF32."""

import torch
import triton
import triton.language as tl

BLOCK_M = 128  # knob: 64 128
BLOCK_N = 128  # knob: 64 128
BLOCK_BYTES = 32  # knob: 16 32 64
BLOCK_F32 = 64  # knob: 32 64
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 3  # knob: 2 3 4
THIN_ROWS = 8  # knob: 4 8 16
THIN_BYTES = 64  # knob: 32 64 128
UNPACK_FROM = 128  # knob: 64 128 256
DEPTH = 64  # knob: 32 64
GROUP = 8  # knob: 4 8 16
# The most rows of x that go without a dot.
THIN = 8


@triton.jit
def _weights(
    packed, scale, low, col, byte, groups, bytes, n, ALONE: tl.constexpr, kind: tl.constexpr
):
    """Both elements of bytes, with 0 behind the row. ALONE: all bytes are of one group."""
    size = groups * bytes
    mask = (col < n) & (byte < size)
    value = tl.load(packed + col.to(tl.int64) * size + byte, mask=mask, other=0)
    if ALONE:
        group = col * groups + tl.min(byte) // bytes
        step = tl.load(scale + group, mask=col < n, other=0.0).to(tl.float32)
        first = tl.load(low + group, mask=col < n, other=0.0).to(tl.float32)
    else:
        group = col * groups + byte // bytes
        step = tl.load(scale + group, mask=mask, other=0.0).to(tl.float32)
        first = tl.load(low + group, mask=mask, other=0.0).to(tl.float32)
    even = (value & 15).to(tl.float32) * step + first
    odd = (value >> 4).to(tl.float32) * step + first
    return even.to(kind), odd.to(kind)


@triton.jit
def _tiles(
    x,
    packed,
    scale,
    low,
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
    own = x + row.to(tl.int64) * (2 * size)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, size, BYTES):
        byte = start + tl.arange(0, BYTES)
        at, mask = own + 2 * byte[None, :], (row < m) & (byte < size)[None, :]
        even, odd = _weights(
            packed, scale, low, col, byte[:, None], groups, bytes, n, ALONE, x.dtype.element_ty
        )
        left = tl.load(at, mask=mask, other=0.0)
        total = tl.dot(left, even, total, input_precision="ieee")
        right = tl.load(at + 1, mask=mask, other=0.0)
        total = tl.dot(right, odd, total, input_precision="ieee")
    target = y + row.to(tl.int64) * n + col
    tl.store(target, total.to(y.dtype.element_ty), mask=(row < m) & (col < n))


@triton.jit
def _unpack(packed, scale, low, weight, count, bytes, BLOCK: tl.constexpr):
    """Both elements of each byte, side by side."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    value = tl.load(packed + at, mask=mask, other=0)
    step = tl.load(scale + at // bytes, mask=mask, other=0.0).to(tl.float32)
    first = tl.load(low + at // bytes, mask=mask, other=0.0).to(tl.float32)
    kind = weight.dtype.element_ty
    even = ((value & 15).to(tl.float32) * step + first).to(kind)
    odd = ((value >> 4).to(tl.float32) * step + first).to(kind)
    both = tl.join(even, odd)
    tl.store(
        weight + 2 * at[:, None] + tl.arange(0, 2)[None, :],
        both,
        mask=mask[:, None],
    )


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
    low,
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
        even, odd = _weights(packed, scale, low, col, byte, groups, bytes, n, ALONE, tl.float32)
        at, mask = (
            x + row * (2 * size) + 2 * byte[None, :, :],
            (row < m) & (byte < size)[None, :, :],
        )
        total += tl.load(at, mask=mask, other=0.0).to(tl.float32) * even[None, :, :]
        total += tl.load(at + 1, mask=mask, other=0.0).to(tl.float32) * odd[None, :, :]
    result = tl.sum(total, axis=2)[:, :, None]
    target = y + row * n + col[None, :, :]
    tl.store(target, result.to(y.dtype.element_ty), mask=(row < m) & (col < n)[None, :, :])


def _fit(length, block):
    """A smaller block for a smaller matrix; 16 is the least that every dot unit takes."""
    return max(16, min(block, triton.next_power_of_2(length)))


def int4_linear(x, packed, scale, low, y):
    m, n = y.shape
    groups, bytes = packed.shape[1:]
    if y.numel() == 0:
        return
    alone = max(bytes & -bytes, 1)  # so many bytes from a group's beginning are all of it
    given = (x, packed, scale, low, y, m, n, groups, bytes)
    if m <= THIN:
        deep = min(THIN_BYTES, max(16, alone))
        grid = (triton.cdiv(n, THIN_ROWS),)
        _thin[grid](*given, alone >= deep, triton.next_power_of_2(m), THIN_ROWS, deep, num_warps=4)
        return
    wide = x.element_size() == 4
    if m >= UNPACK_FROM and not wide and packed.numel():
        _launch_unpacked(x, packed, scale, low, y)
        return
    block_m = _fit(m, BLOCK_F32 if wide else BLOCK_M)
    block_n = _fit(n, BLOCK_F32 if wide else BLOCK_N)
    deep = min(BLOCK_BYTES, max(16, alone))
    grid = (triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)
    warps = NUM_WARPS if block_m * block_n >= 8192 else 4
    _tiles[grid](
        *given, alone >= deep, block_m, block_n, deep, num_warps=warps, num_stages=NUM_STAGES
    )


def _launch_unpacked(x, packed, scale, low, y):
    (m, k), n = x.shape, y.shape[1]
    weight = torch.empty((n, k), dtype=x.dtype, device=x.device)
    count, block = packed.numel(), 1024
    _unpack[(triton.cdiv(count, block),)](
        packed, scale, low, weight, count, packed.shape[2], BLOCK=block, num_warps=4
    )
    tile_m, tile_n = _fit(m, BLOCK_M), _fit(n, BLOCK_N)
    warps = NUM_WARPS if tile_m * tile_n >= 8192 else 4
    grid = (triton.cdiv(m, tile_m) * triton.cdiv(n, tile_n),)
    _unpacked_tiles[grid](
        x, weight, y, m, n, k, tile_m, tile_n, DEPTH, GROUP, num_warps=warps, num_stages=NUM_STAGES
    )
