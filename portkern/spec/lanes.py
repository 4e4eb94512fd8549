"""Which elements of its matrices a lane holds in one matrix instruction, as expressions in C: ``l``
is the lane, ``e`` the element among those that it holds, in the order of its registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from portkern.spec.target import MatrixInstruction

Place = tuple[str, str]  # row and column


class Lanes(NamedTuple):
    """``a`` (row, k) and ``b`` (k, column) are None where these come from shared memory."""

    a: Place | None
    b: Place | None
    sums: Place

    def __str__(self) -> str:
        named = {"A": self.a, "B": self.b, "sums": self.sums}
        return ", ".join(
            f"{name}[{place[0]}][{place[1]}]" for name, place in named.items() if place is not None
        )


def of(each: MatrixInstruction, shape: str) -> Lanes | None:
    """The lanes of an instruction of this MxNxK; None where they are not known here."""
    m, _, k = map(int, shape.split("x"))
    match each.name:
        case "mfma":
            return _mfma(m, m * k // 64, double=each.inputs == "f64")
        case "wmma" if "gfx12" in each.call:
            return _alike("l % 16", "8 * (l / 16) + e", ("8 * (l / 16) + e", "l % 16"))
        case "wmma":
            return _alike("l % 16", "e", ("2 * e + l / 16", "l % 16"))
        case "mma.sync":
            return _mma(m, m * k // 32)
        case "wgmma":
            row = "16 * (l / 32) + l % 32 / 4 + 8 * (e / 2 % 2)"  # l counts the group's 128 threads
            return Lanes(None, None, (row, "8 * (e / 4) + 2 * (l % 4) + e % 2"))
    return None


def _alike(outer: str, k: str, sums: Place) -> Lanes:
    """A lane has of a column of B what it has of a row of A."""
    return Lanes((outer, k), (k, outer), sums)


def _mfma(m: int, held: int, *, double: bool) -> Lanes:
    group = f"l / {m}" if held == 1 else f"{held} * (l / {m}) + e"
    if double:
        row = f"l / {m} + 4 * e"
    elif m == 16:
        row = "4 * (l / 16) + e"
    else:
        row = f"8 * (e / 4) + 4 * (l / {m}) + e % 4"
    return _alike(f"l % {m}", group, (row, f"l % {m}"))


def _mma(m: int, held: int) -> Lanes:
    """A register has ``run`` elements, side by side along k; four lanes share a row or column."""
    if m == 8:  # of float64
        return Lanes(("l / 4", "l % 4"), ("l % 4", "l / 4"), ("l / 4", "2 * (l % 4) + e"))
    run = held // 4
    inside = "" if run == 1 else f" + e % {run}"
    begin = "l % 4" if run == 1 else f"{run} * (l % 4)"
    second = f"8 * (e / {run} % 2)" if run > 1 else "8 * (e % 2)"
    k_of_a = f"{begin}{inside} + {4 * run} * (e / {2 * run})"
    k_of_b = f"{begin}{inside} + {4 * run} * " + (f"(e / {run})" if run > 1 else "e")
    sums = ("l / 4 + 8 * (e / 2)", "2 * (l % 4) + e % 2")
    return Lanes(("l / 4 + " + second, k_of_a), (k_of_b, "l / 4"), sums)
