"""Which kernel of ``portkern/cpu_product.h`` makes a product on a CPU, and in which blocks."""

import numpy

TALL, BROAD = 72, 96  # at most, as in cpu_tile.h
TILE = 12, 32  # what sides of a block are multiples of
FEW_COLUMNS, SHALLOW = 8, 8
FEW_ROWS, STRIP = 12, 512  # as in cpu_product.h
#: Work-items that keep the cores of most machines busy, and the least terms of a part of a sum.
ENOUGH, LEAST = 32, 1024


def multiply_cpu(queue, program, a, b, scale, c, *, batch, m, n, k, enough=ENOUGH):
    """C = A B of each of a batch, by ``enough`` work-items where it divides so far; ``scale``
    is read where SOURCE defines INT8_WEIGHTS."""
    batch, m, n, k = map(int, (batch, m, n, k))
    queue = program.nearby(queue, batch * (m * n * k // 8 + m * n + m * k + n * k))
    operands, sizes = (a, b, scale, c), map(numpy.int64, (m, n, k))
    if n <= FEW_COLUMNS and k <= SHALLOW:
        each = max(256, -(-batch * m * n // 1024))
        shape = map(numpy.int64, (batch * m * n, each))
        program.shallow_cpu(queue, (-(-batch * m * n // each),), (1,), *operands, *sizes, *shape)
        return
    shape = ()
    if n <= FEW_COLUMNS and (m > n or n == 1):
        tall = max(1, min(TALL, m, -(-batch * m // enough)))
        kernel, blocks, shape = program.few_columns_cpu, (-(-m // tall), 1), (tall,)
    elif m <= FEW_ROWS:
        broad = even(n, STRIP, 32)
        kernel, blocks, shape = program.few_rows_cpu, (-(-n // broad), 1), (broad,)
    else:
        kernel = program.product_cpu
        tall, broad = sides(batch, m, n, enough)
        blocks, shape = (-(-m // tall), -(-n // broad)), (tall, broad)
    groups = batch * blocks[0] * blocks[1]
    splits = max(1, min(enough // groups, k // LEAST))
    share = -(-k // splits)
    parts = program.scratch(4 * splits * batch * m * n) if splits > 1 else c
    size = (*blocks, batch * splits)
    shape = map(numpy.int32, (splits, *shape))
    kernel(queue, size, (1, 1, 1), *operands, parts, *sizes, numpy.int64(share), *shape)
    if splits > 1:
        count = batch * m * n
        size = (-(-count // program.vec),)
        shape = numpy.int64(count), numpy.int64(n), numpy.int32(splits)
        program.add_parts_cpu(queue, size, (1,), parts, scale, c, *shape)


def sides(batch, m, n, enough=ENOUGH):
    """A block's: as even as whole tiles allow, and smaller where there would be too few."""
    tall, broad = even(m, TALL, TILE[0]), even(n, BROAD, TILE[1])
    while batch * -(-m // tall) * -(-n // broad) < enough and max(tall, broad) > 36:
        if broad >= tall:
            broad = even(n, broad - TILE[1], TILE[1])
        else:
            tall = even(m, tall - TILE[0], TILE[0])
    return tall, broad


def even(length, most, tile):
    """The side of as many blocks as are needed, in whole tiles."""
    blocks = -(-length // most)
    return -(-length // (blocks * tile)) * tile
