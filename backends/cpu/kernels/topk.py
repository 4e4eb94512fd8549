"""Elements above the least of the best so far are gathered; a full buffer is cut down to k.

An element and its index become one integer, so that no two are equal and ties go to the first. The
one largest is searched for, and in narrow rows each element's place is counted,
many rows at once.
"""

import numba
import numpy as np

from portkern.backends.cpu.include.ordering import first_largest, ordered
from portkern.backends.cpu.include.rows import turn
from portkern.backends.cpu.include.threads import sharing

BLOCK = 32  # knob: 16 32 64 128
NARROW = 16  # knob: 8 16 32
TALL = 128  # knob: 64 128 256
PARALLEL_FROM = 8192  # knob: 2048 8192 32768
LEAST = np.int32(-(2**31))
LOW = np.int64(2**32 - 1)


@numba.njit
def order(x, to):
    """Write the integers of x and return the largest."""
    top = LEAST
    for i in range(x.size):
        to[i] = ordered(x[i])
        top = max(top, to[i])
    return top


@numba.njit
def select(keys, count, k):
    """Move the k largest of the first ``count`` keys to the front: quicksort of one side only."""
    left, right = 0, count
    while left < k < right:
        middle = (left + right) // 2
        pivot = keys[middle]
        keys[middle] = keys[right - 1]
        edge = left
        for i in range(left, right - 1):  # no branch, which would be mispredicted half of the time
            key = keys[i]
            keys[i] = keys[edge]
            keys[edge] = key
            edge += key > pivot
        keys[right - 1] = keys[edge]
        keys[edge] = pivot
        if edge < k:
            left = edge + 1
        else:
            right = edge


@numba.njit
def sort(keys, count):
    """Shell's, in falling order."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            key = keys[i]
            j = i
            while j >= gap and keys[j - gap] < key:
                keys[j] = keys[j - gap]
                j -= gap
            keys[j] = key
        gap //= 3


@numba.njit
def best(x, k, keys, integers):
    count, least = 0, LEAST
    for start in range(0, x.size, BLOCK):
        stop = min(start + BLOCK, x.size)
        if order(x[start:stop], integers) <= least:
            continue  # of equal ones the first are kept
        if count + BLOCK > keys.size:
            select(keys, count, k)
            count = k
            least = np.int32(keys[:k].min() >> 32)
        for i in range(start, stop):
            keys[count] = (np.int64(integers[i - start]) << 32) | (LOW - i)
            count += integers[i - start] > least
    select(keys, count, k)
    sort(keys, k)


@numba.njit
def largest_alone(begin, end, x, values, indices):
    for row in range(begin, end):
        place = first_largest(x[row], 8 * BLOCK)
        indices[row, 0], values[row, 0] = place, x[row, place]


@numba.njit
def order_columns(columns, to):
    for j in range(to.shape[0]):
        order(columns[j], to[j])


@numba.njit
def count_above(other, own, least, place):
    """Adds one to the place where another is more than ``own`` by ``least``, 0 or 1."""
    for r in range(place.size):
        place[r] += np.int32(other[r] - least >= own[r])


@numba.njit
def narrow_rows(begin, end, x, values, indices, k):
    """TALL rows at once, element by element: each one's place is how many come before it."""
    cols = x.shape[1]
    columns, keys = np.empty((cols, TALL), np.float32), np.empty((cols, TALL), np.int32)
    place, found = np.empty(TALL, np.int32), np.empty((TALL, cols), np.int64)
    for block in range(begin, end):
        first = block * TALL
        count = turn(x, first, columns)
        order_columns(columns, keys)
        for i in range(cols):
            place[:] = 0
            for j in range(cols):
                count_above(keys[j], keys[i], np.int32(j >= i), place)
            for r in range(count):
                found[r, place[r]] = i
        for r in range(count):
            for i in range(k):
                indices[first + r, i] = found[r, i]
                values[first + r, i] = x[first + r, found[r, i]]


@numba.njit
def wide_rows(begin, end, x, values, indices, k):
    keys, integers = np.empty(2 * (k + BLOCK), np.int64), np.empty(BLOCK, np.int32)
    for row in range(begin, end):
        best(x[row], k, keys, integers)
        for i in range(k):
            indices[row, i] = LOW - (keys[i] & LOW)
            values[row, i] = x[row, indices[row, i]]


share_alone = sharing(largest_alone, PARALLEL_FROM)
share_narrow = sharing(narrow_rows, PARALLEL_FROM)
share_wide = sharing(wide_rows, PARALLEL_FROM)


@numba.njit
def topk(x, values, indices, k):
    rows, cols = x.shape
    if cols <= NARROW:
        share_narrow((rows + TALL - 1) // TALL, x.size, x, values, indices, k)
    elif k == 1:
        share_alone(rows, x.size, x, values, indices)
    else:
        share_wide(rows, x.size, x, values, indices, k)
