"""Sums along memory, or of columns: some rows at a time are added to a tile of sums."""

import numba
import numpy as np

from portkern.backends.cpu.include.rows import copy, fill
from portkern.backends.cpu.include.sums import summing
from portkern.backends.cpu.include.threads import sharing

TILE = 256  # knob: 64 128 256 512
BLOCK = 128  # knob: 64 128 256 512
SHORT = 32  # knob: 16 32 64
RUN = 4096  # knob: 1024 4096
PARALLEL_FROM = 32768  # knob: 8192 32768 131072
ZERO = np.float32(0.0)
sum_run = summing(RUN)  # of what lies in one piece


@numba.njit
def add_rows(flat, at, step, rows, to):
    """Of rows that begin ``step`` elements apart, four at a time. Indices that might be negative
    are checked, and such loops are not vectorised."""
    for _ in range(0, rows - 3, 4):
        a, b, c, d = at, at + step, at + 2 * step, at + 3 * step
        for j in range(to.size):
            pair = flat[np.uint64(a + j)] + flat[np.uint64(b + j)]
            to[j] += pair + (flat[np.uint64(c + j)] + flat[np.uint64(d + j)])
        at += 4 * step
    for _ in range(rows % 4):
        for j in range(to.size):
            to[j] += flat[np.uint64(at + j)]
        at += step


@numba.njit
def sum_columns(flat, at, step, rows, part, to):
    """Rows from ``at`` on, by blocks, whose number the error grows with."""
    fill(to, ZERO)
    for start in range(0, rows, BLOCK):
        fill(part, ZERO)
        add_rows(flat, at + start * step, step, min(BLOCK, rows - start), part)
        for j in range(to.size):
            to[j] += part[j]


@numba.njit
def sum_narrow(flat, at, rows, part, wide, to):
    """As many rows as a tile holds are added as one; then the parts of that."""
    inner = to.size
    several = min(TILE // inner, rows)
    size = several * inner
    whole = rows // several
    sum_columns(flat, at, size, whole, part[:size], wide[:size])
    sum_columns(flat, at + whole * size, inner, rows - whole * several, part[:inner], to)
    add_rows(wide, 0, inner, several, to)


@numba.njit
def sums(begin, end, flat, y, reduce, parts):
    """Each row of y is one of ``parts`` of what is summed, each job a tile of it."""
    inner = y.shape[1]
    tiles = (inner + TILE - 1) // TILE
    part, wide = np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    for job in range(begin, end):
        row, left = job // tiles, job % tiles * TILE
        first = row % parts * reduce // parts
        rows = (row % parts + 1) * reduce // parts - first
        at, width = (row // parts * reduce + first) * inner + left, min(TILE, inner - left)
        if inner == 1:
            y[row, 0] = sum_run(flat[at : at + rows])
        elif 2 * inner <= TILE and rows > 4:
            sum_narrow(flat, at, rows, part, wide, y[row])
        else:
            sum_columns(flat, at, inner, rows, part[:width], y[row][left : left + width])


@numba.njit
def add_every(flat, step, to, apart):
    for i in range(min(TILE, (to.size + apart - 1) // apart)):
        to[np.uint64(i * apart)] += flat[np.uint64(i * step)]


@numba.njit
def short_sums(begin, end, flat, y, reduce):
    """Element by element of a tile of them: a loop along what one sums would be too short."""
    inner = y.shape[1]
    for job in range(begin, end):
        first = job * TILE
        to = y[first : first + TILE].reshape(min(TILE, y.shape[0] - first) * inner)
        fill(to, ZERO)
        for k in range(reduce * inner):
            at = first * reduce * inner + k
            add_every(flat[at:], reduce * inner, to[k % inner :], inner)


@numba.njit
def copies(begin, end, x, y):
    copy(x[begin:end], y[begin:end])


share_sums = sharing(sums, PARALLEL_FROM)
share_short = sharing(short_sums, PARALLEL_FROM)
share_copies = sharing(copies, PARALLEL_FROM)


@numba.njit
def sum(x, y):
    outer, reduce, inner = x.shape
    flat, jobs = x.reshape(x.size), outer * ((inner + TILE - 1) // TILE)
    if reduce == 1:
        share_copies(x.size, x.size, flat, y.reshape(y.size))
        return
    if 0 < reduce * inner <= SHORT and outer > 1:
        share_short((outer + TILE - 1) // TILE, x.size, flat, y, reduce)
        return
    parts = numba.get_num_threads()
    if jobs >= parts or x.size < PARALLEL_FROM:
        share_sums(jobs, x.size, flat, y, reduce, 1)
        return
    halves = np.empty((outer * parts, inner), np.float32)
    share_sums(jobs * parts, x.size, flat, halves, reduce, parts)
    share_sums(jobs, halves.size, halves.reshape(halves.size), y, parts, 1)
