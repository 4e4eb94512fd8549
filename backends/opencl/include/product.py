"""Which kernels of ``portkern/thin_product.h`` and ``portkern/product.h`` make a product."""

import numpy

#: What a GPU is busy with: groups of thin products, and of tiles.
THIN_GROUPS = 1024
TILE_GROUPS = 264
THIN = 128  # work-items, as in thin_product.h
LOOSE = 4  # columns of a work-item where vectors cannot be read, as there
FEW_COLUMNS = 8
SHALLOW = 8


def multiply(queue, program, a, b, scale, c, *, batch, m, n, k):
    """C = A B of each of a batch; ``scale`` is read where SOURCE defines INT8_WEIGHTS."""
    batch, m, n, k = map(int, (batch, m, n, k))
    call = _Call(queue, program, (a, b, scale, c), batch, m, n, k)
    if k <= SHALLOW:
        call.shallow()
    elif n <= FEW_COLUMNS and (m > n or n == 1):
        call.few_columns()
    elif m <= (16 if program.vec == 4 else 8):
        call.few_rows()
    else:
        call.tiles()


class _Call:
    """One product, and where the operands are."""

    def __init__(self, queue, program, operands, batch, m, n, k):
        self.queue, self.program, self.operands = queue, program, operands
        self.batch, self.m, self.n, self.k = batch, m, n, k
        self.count = batch * m * n

    def shallow(self):
        size = _ceil(self.count, THIN * self.program.vec) * THIN
        sizes = _longs(self.m, self.n, self.k, self.count)
        self.program.shallow(self.queue, (size,), (THIN,), *self.operands, *sizes)

    def few_columns(self):
        lanes = min(THIN, _power(_ceil(self.k, 2 * self.program.vec)))
        tall = THIN // lanes
        groups = _ceil(self.batch * self.m, tall)
        splits, share = parts_of(self.k, groups, THIN_GROUPS, 4 * lanes * self.program.vec)
        kernel = getattr(self.program, f"few_columns_{self.n}")
        sizes = (*_longs(self.batch, self.m, self.k, share), numpy.int32(splits))
        size = (groups * splits * lanes, tall)
        parts = self.parts(splits)
        kernel(self.queue, size, (lanes, tall), *self.operands, parts, *sizes)
        self.add(parts, splits)

    def few_rows(self):
        packed = self.n % self.program.vec == 0
        own = self.program.vec if packed else LOOSE
        wide = _power(_ceil(self.n, own))
        # As many work-items share a column as have eight of its elements each.
        wide = min(wide, max(32, THIN // _power(_ceil(self.k, 8))), THIN)
        tiles = _ceil(self.n, wide * own)
        least = THIN // wide * 8
        splits, share = parts_of(self.k, self.batch * tiles, THIN_GROUPS, least)
        kernel = getattr(self.program, f"few_rows_{'' if packed else 'loose_'}{_power(self.m)}")
        sizes = _longs(self.batch, self.m, self.n, self.k, share)
        shape = map(numpy.int32, (tiles, splits, wide))
        parts, size = self.parts(splits), self.batch * tiles * splits * THIN
        kernel(self.queue, (size,), (THIN,), *self.operands, parts, *sizes, *shape)
        self.add(parts, splits)

    def tiles(self):
        high, wide = self.sides()
        tiles = _ceil(self.m, high) * _ceil(self.n, wide) * self.batch
        splits, share = parts_of(self.k, tiles, TILE_GROUPS, 128)
        items = 256 if high == wide == 128 else 128
        kernel = getattr(self.program, f"product_{high}x{wide}")
        sizes = (*_longs(self.batch, self.m, self.n, self.k, share), numpy.int32(splits))
        parts, size = self.parts(splits), tiles * splits * items
        kernel(self.queue, (size,), (items,), *self.operands, parts, *sizes)
        self.add(parts, splits)

    def sides(self):
        """A tile's: large ones do the most with what they read, but there must be enough."""
        if self.m <= 32:
            return 32, 128
        if self.n <= 32:
            return 128, 32
        large = _ceil(self.m, 128) * _ceil(self.n, 128) * self.batch
        return (128, 128) if large >= TILE_GROUPS // 2 and min(self.m, self.n) > 64 else (64, 64)

    def parts(self, splits):
        """Memory for sums that several groups share; without any, something to pass on."""
        if splits == 1:
            return self.operands[-1]
        return self.program.scratch(4 * splits * self.count)

    def add(self, parts, splits):
        if splits == 1:
            return
        *_, scale, c = self.operands
        wide = min(32, _power(self.count))
        size = _ceil(self.count, wide) * THIN
        shape = map(numpy.int32, (splits, wide))
        sizes = _longs(self.count, self.n)
        self.program.add_parts(self.queue, (size,), (THIN,), parts, scale, c, *sizes, *shape)


def parts_of(k, groups, enough, least):
    """The number of parts that sums over ``k`` are split into so that there are enough groups,
    and each part's length: at least so much, and a multiple of 32, which every kernel's step
    divides."""
    wanted = max(1, min(enough // max(groups, 1), k // least))
    share = _ceil(_ceil(k, wanted), 32) * 32
    return _ceil(k, share), share


def _ceil(n, d):
    return -(-n // d)


def _power(n):
    """The smallest power of two that is no less."""
    return 1 << (n - 1).bit_length()


def _longs(*values):
    return map(numpy.int64, values)
