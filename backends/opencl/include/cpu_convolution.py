"""The part of a convolution with pools that one work-item computes on a CPU."""

from .cpu_product import ENOUGH, TALL, TILE, even

#: Elements of one plane of the convolution: its lines' maxima take the place of packed filters.
PLANE = 4096


def pools_of(region, n, f, oh, ow, window, pool_stride):
    """Lines and columns of pools, and of how many filters: ``region`` elements of the convolution
    at most, whole lines if they fit, and fewer lines where there would be too few work-items.
    No lines where a pool is larger than that."""
    if window * window > PLANE:
        return (0, 0), TALL
    tall = min(even(f, TALL, TILE[0]), region // (window * window))
    most = min(region // tall, PLANE)
    pw = min(ow, (most // window - window) // pool_stride + 1)
    ph = min(oh, (most // ((pw - 1) * pool_stride + window) - window) // pool_stride + 1)
    while ph > 1 and n * -(-f // tall) * -(-ow // pw) * -(-oh // ph) < ENOUGH:
        ph = -(-ph // 2)
    return (ph, pw), tall
