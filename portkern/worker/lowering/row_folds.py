"""Reductions whose elements lanes of a row share: each lane takes every so many, then the row puts
them together."""

from __future__ import annotations

from collections.abc import Sequence

from portkern.worker.lowering.body import Body, Fold, Kind

#: The folds that lanes put together; others go over their elements one after the other.
_JOINED = frozenset("sum mean amax amin any all > <".split())
_MOST = {"float": "INFINITY", "double": "INFINITY", "int64_t": "INT64_MAX"}
_LEAST = {"float": "-INFINITY", "double": "-INFINITY", "int64_t": "INT64_MIN"}


def joins(fold: Fold) -> bool:
    """Whether lanes of a row can share it."""
    kinds = {kind for kind, _ in fold.state}
    return (
        not fold.across
        and fold.how in _JOINED
        and (fold.how in ("any", "all") or kinds <= {*_MOST})
    )


def join(body: Body, fold: Fold, names: Sequence[str]) -> None:
    """Says what gives each lane what all have taken, in the state of these names."""
    kind, first = fold.state[0][0], names[0]
    match fold.how:
        case "sum" | "mean":
            body.say(f"{first} = row_sum({first});")
        case "any":
            body.say(f"{first} = row_any({first});")
        case "all":
            body.say(f"{first} = !row_any(!{first});")
        case "amax" | "amin":
            body.say(f"{first} = {_best(body, first, kind, largest=fold.how == 'amax')};")
        case _:
            _first_best(body, names, kind, largest=fold.how == ">")


def _best(body: Body, name: str, kind: Kind, *, largest: bool) -> str:
    """A NaN, where there is one."""
    how, worst = ("row_max", _LEAST[kind]) if largest else ("row_min", _MOST[kind])
    if kind == "int64_t":
        return f"{how}({name})"
    nan = body.let("bool", f"row_any({name} != {name})")
    return f"{nan} ? NAN : {how}({name} != {name} ? {worst} : {name})"


def _first_best(body: Body, names: Sequence[str], kind: Kind, *, largest: bool) -> None:
    """And where the first of it is. Lanes that have taken nothing have no place."""
    best, place = names
    how, worst = ("row_max", _LEAST[kind]) if largest else ("row_min", _MOST[kind])
    nan = body.let("bool", f"{place} >= 0 && {best} != {best}")
    nans = body.let("bool", f"row_any({nan})")
    top = body.let(kind, f"{how}({place} < 0 || {best} != {best} ? {worst} : {best})")
    found = body.let("bool", f"{nans} ? {nan} : ({place} >= 0 && {best} == {top})")
    body.say(f"{place} = row_min({found} ? {place} : INT64_MAX);")
    body.say(f"{best} = {top};" if kind == "int64_t" else f"{best} = {nans} ? NAN : {top};")
