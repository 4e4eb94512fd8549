"""Windows that slide over images. Channels lie in lanes and columns in sublanes, and the phases of
a stride lie apart, so that no load has a stride."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

#: Columns of a block are a multiple of the sublanes that a tile of 16 bits has.
COLUMNS = 16


def count(length, window, stride, padding=0):
    """How many windows fit, at every stride, into a padded length."""
    return (length + 2 * padding - window) // stride + 1


def even(length, step=COLUMNS):
    """The next multiple of a step, which is that of columns in a block."""
    return pl.cdiv(length, step) * step


def padded(x, fill, padding, tall, wide):
    """Images (n, h, w, c) with ``padding`` before them and as much behind them that they are tall
    and wide; what no window reaches is left out."""
    _, h, w, _ = x.shape
    edges = [
        (0, 0, 0),
        (padding, tall - padding - h, 0),
        (padding, wide - padding - w, 0),
        (0, 0, 0),
    ]
    return jax.lax.pad(x, jnp.asarray(fill, x.dtype), edges)


def apart(x, down, across, depth):
    """Images as (n, c / depth, h / down, down, across, w / across, depth): line y and column z of
    one are at [y // down, y % down, z % across, z // across]. Channels come to whole blocks."""
    n, h, w, c = x.shape
    x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, even(c, depth) - c)))
    parts = x.reshape(n, h // down, down, w // across, across, -1, depth)
    return parts.transpose(0, 5, 1, 2, 4, 3, 6)


def lines(parts, tall, start):
    """Blocks of so many lines of phases: a block has lines that the one before it has, too.
    ``start`` tells image, block of channels and first line by the program's place in the grid."""
    block = (1, 1, tall, *parts.shape[3:])
    return pl.BlockSpec(tuple(map(pl.Element, block)), lambda *at: (*start(*at), 0, 0, 0, 0))


def tap(x_ref, dy, dx, tall, wide):
    """One element of each of (tall, wide) windows: that at line dy and column dx of it."""
    down, across = x_ref.shape[3:5]
    rows, columns = pl.ds(dy // down, tall), pl.ds(dx // across, wide)
    return x_ref[0, 0, rows, dy % down, dx % across, columns, :]
