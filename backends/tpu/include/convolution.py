"""A convolution as products of the MXU: one for each tap of the filters, of all windows of a block
of lines with all filters; where it is asked for, rectified and pooled before it leaves VMEM."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .windows import apart, count, even, lines, padded, tap

FILTERS = 128
CHANNELS = 512  # at most at once


def arranged(x, weight, bias, *, stride, padding, outputs, pool=(1, 1)):
    """The operands of a convolution, and what ``pallas_call`` is told of it; a block has so many
    ``outputs`` of each filter before they are pooled, by a window and its stride. The result is
    (n, h, w, filters), with columns and lines behind the last."""
    c, (f, _, kh, kw) = x.shape[1], weight.shape
    window, step = pool
    n, _, oh, ow = size(x, weight, stride, padding, pool)
    wide = even(ow)
    columns = even((wide - 1) * step + window)
    rows = max(1, min(oh, outputs // columns // step))
    tiles = pl.cdiv(oh, rows)
    tall = (rows - 1) * step + window  # lines of the convolution
    whole = tall + (kh - 1) // stride  # and those of the image that it reads, of each phase
    last = (tiles - 1) * rows * step + whole

    images, filters = x.transpose(0, 2, 3, 1), weight.transpose(2, 3, 1, 0)
    folds = kw * c <= FILTERS  # lanes would be idle: the columns of a filter lie in them, too
    across = 1 if folds else stride
    broad = columns + (0 if folds else (kw - 1) // stride)  # columns that are read, of each phase
    far = (columns - 1) * stride + kw if folds else broad * stride
    images = padded(images, 0, padding, last * stride, far)
    if folds:
        stop = (columns - 1) * stride + 1
        shifted = [images[:, :, dx : dx + stop : stride] for dx in range(kw)]
        images, filters = jnp.concatenate(shifted, 3), filters.reshape(kh, 1, kw * c, f)
    depth = min(filters.shape[2], CHANNELS)
    parts = apart(images, stride, across, depth)
    behind = parts.shape[1] * depth - filters.shape[2]
    filters = jnp.pad(filters, ((0, 0), (0, 0), (0, behind), (0, 0)))
    asked = {
        "grid": (n, tiles, pl.cdiv(f, FILTERS), parts.shape[1]),
        "in_specs": [
            lines(parts, whole, lambda i, t, o, s: (i, s, t * rows * step)),
            pl.BlockSpec((*filters.shape[:2], depth, FILTERS), lambda i, t, o, s: (0, 0, s, o)),
            pl.BlockSpec((1, FILTERS), lambda i, t, o, s: (0, o)),
        ],
        "out_specs": pl.BlockSpec((None, rows, wide, FILTERS), lambda i, t, o, s: (i, t, 0, o)),
        "out_shape": jax.ShapeDtypeStruct((n, tiles * rows, wide, f), x.dtype),
        "scratch_shapes": [pltpu.VMEM((tall, columns, FILTERS), jnp.float32)],
    }
    return (parts, filters, bias.reshape(1, f)), asked


def size(x, weight, stride, padding, pool=(1, 1)):
    """The result's, as (n, f, h, w)."""
    oh, ow = (
        count(count(length, taps, stride, padding), *pool)
        for length, taps in zip(x.shape[2:], weight.shape[2:], strict=True)
    )
    return x.shape[0], weight.shape[0], oh, ow


def convolution(x_ref, filter_ref, bias_ref, y_ref, sum_ref, *, pool=None):
    """The kernel of one block, rectified where it is pooled."""
    step = pl.program_id(3)
    tall, wide, f = sum_ref.shape
    kh, kw, depth, _ = filter_ref.shape
    exact = jax.lax.Precision.HIGHEST if x_ref.dtype == jnp.float32 else jax.lax.Precision.DEFAULT

    @pl.when(step == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    for dy in range(kh):
        for dx in range(kw):
            part = jnp.dot(
                tap(x_ref, dy, dx, tall, wide).reshape(tall * wide, depth),
                filter_ref[dy, dx],
                precision=exact,
                preferred_element_type=jnp.float32,
            )
            sum_ref[...] += part.reshape(tall, wide, f)

    @pl.when(step == pl.num_programs(3) - 1)
    def _():
        bias = bias_ref[...].astype(jnp.float32).reshape(1, 1, f)
        if pool is None:
            y_ref[...] = (sum_ref[...] + bias).astype(y_ref.dtype)
        else:  # adding and rectifying keep the order, and are done once
            value = _pooled(sum_ref, y_ref.shape, *pool) + bias
            y_ref[...] = jnp.maximum(value, 0.0).astype(y_ref.dtype)


def _pooled(sum_ref, shape, window, step):
    tall, wide, _ = shape
    largest = None
    for dy in range(window):
        for dx in range(window):
            value = sum_ref[pl.ds(dy, tall, step), pl.ds(dx, wide, step), :]
            largest = value if largest is None else jnp.maximum(largest, value)
    return largest
