"""Elements above the least of the best so far are gathered; a full buffer is cut down to k.

An element and its index become one integer, so that no two are equal and ties go to the first. The
one largest is searched for, and in a narrow row each element's place is counted.
"""

import numba
import numpy as np

from portkern.backends.cpu.include.ordering import first_largest, ordered

BLOCK = 32  # knob: 16 32 64 128
NARROW = 16  # knob: 8 16 32
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


@numba.njit(parallel=True)
def largest_alone(x, values, indices):
    for row in numba.prange(x.shape[0]):
        place = first_largest(x[row], 8 * BLOCK)
        indices[row, 0], values[row, 0] = place, x[row, place]


@numba.njit(parallel=True)
def narrow_rows(x, values, indices, k):
    rows, cols = x.shape
    for row in numba.prange(rows):
        for i in range(cols):
            own, place = ordered(x[row, i]), 0
            for j in range(cols):
                other = ordered(x[row, j])
                place += (other > own) | ((other == own) & (j < i))
            if place < k:
                indices[row, place], values[row, place] = i, x[row, i]


@numba.njit(parallel=True)
def wide_rows(x, values, indices, k):
    for row in numba.prange(x.shape[0]):
        keys = np.empty(2 * (k + BLOCK), np.int64)
        integers = np.empty(BLOCK, np.int32)
        best(x[row], k, keys, integers)
        for i in range(k):
            indices[row, i] = LOW - (keys[i] & LOW)
            values[row, i] = x[row, indices[row, i]]


@numba.njit
def topk(x, values, indices, k):
    if x.shape[1] <= NARROW:
        narrow_rows(x, values, indices, k)
    elif k == 1:
        largest_alone(x, values, indices)
    else:
        wide_rows(x, values, indices, k)
