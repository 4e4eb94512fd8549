"""A comparison in words and in plain tables: what Markdown and a terminal show of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from portkern.experiment.compare.result import (
    METRICS,
    Figure,
    ModelComparison,
    ModelDifference,
    SampleScope,
    TaskResult,
    Venue,
)
from portkern.experiment.section import DASH, SectionTable, counted, listed

VENUES: Final[dict[Venue, str]] = {
    "measured": "Measured on hardware",
    "emulated": "Emulated",
    "": "Evidence not known",
    "any": "In all places at once, measured or emulated",
}
#: What a table of models shows, as far as anybody has it: metric, whether at the largest k, p.
BOARD: Final[tuple[tuple[str, bool, float | None], ...]] = (
    ("pass", True, None),
    ("fast", True, 1.0),
    ("speedup_geometric", True, None),
    ("efficiency", True, None),
    ("portable_pass", True, None),
    ("pp_architectural", False, None),
    ("heldout", False, None),
    ("cheat", False, None),
    ("tokens_per_solved", False, None),
    ("usd_per_solved", False, None),
)
#: Why there is no number, in as many words as a table has room for.
_WORDS = ("not timed", "not looked for")
#: Models that a title names.
_MOST_NAMED = 3
#: Lines that a terminal gets.
_MOST_LINES = 20
_MOST_SENTENCES = 4
_NAME_WIDTH = 32


def title(comparison: ModelComparison) -> str:
    models = comparison.models
    named = listed(models) if len(models) <= _MOST_NAMED else counted(len(models), "model")
    return f"{named} on {counted(len(comparison.places), 'place')}"


def counts(comparison: ModelComparison) -> str:
    parts = [
        counted(len(comparison.models), "model"),
        counted(comparison.ops, "operator"),
        counted(len(comparison.places), "place"),
        f"{comparison.samples:,} samples",
    ]
    left = comparison.unevaluated
    return ", ".join(parts) + (f", {left:,} of them not evaluated" if left else "")


def lead(comparison: ModelComparison) -> list[str]:
    """Sentences on what the paired tests show, the surest pair first, then on what they do not
    show, the pair that is the nearest to it first."""
    shown = sorted((d for d in comparison.differences if d.shown), key=_surest)
    said = [d.words for d in shown[:_MOST_SENTENCES]]
    if len(shown) > _MOST_SENTENCES:
        more = len(shown) - _MOST_SENTENCES
        said.append(f"{counted(more, 'more difference')} {'is' if more == 1 else 'are'} shown.")
    others = sorted((d for d in comparison.differences if not d.shown), key=_surest)
    if others and not shown:
        said += [d.words for d in others[:_MOST_SENTENCES]]
    elif others:
        pairs = dict.fromkeys(f"{d.first} and {d.second}" for d in others)
        few = list(pairs)[:_MOST_SENTENCES] + (["others"] if len(pairs) > _MOST_SENTENCES else [])
        said.append(
            f"No difference shown in {len(others)} of {len(comparison.differences)} comparisons "
            f"(between {'; '.join(few)}): their intervals say how large it could be."
        )
    if not comparison.differences and len(comparison.models) > 1:
        said.append("No two models have a task in common, so that none can be compared.")
    return said


def _surest(one: ModelDifference) -> tuple[float, float, float]:
    """A key that sorts the surest first: of equal p, which many have, the one that is furthest from
    none by its interval."""
    if one.p_holm is None or one.p_value is None or one.estimate is None:
        return 1.0, 1.0, 0.0
    value, (low, high) = one.estimate.value, one.estimate.ends
    if METRICS[one.metric].unit == "times":
        value, low, high = math.log(value), math.log(low), math.log(high)
    return one.p_holm, one.p_value, -abs(value) / (high - low) if high > low else -math.inf


def told(figure: Figure | None, *, interval: bool = True) -> str:
    """``62 % [55, 69]``, or in a word why there is no number."""
    if figure is None:
        return DASH
    if figure.estimate is None:
        return next((word for word in _WORDS if word in figure.reason), "none")
    amount = _AMOUNTS[METRICS[figure.metric].unit]
    value = amount(figure.estimate.value)
    if not interval or figure.estimate.ci95 is None:
        return value
    low, high = (amount(end).strip(" %×$s") for end in figure.estimate.ci95)
    return f"{value} [{low}, {high}]"


def _dollars(value: float) -> str:
    return f"${value:.2g}" if value < 0.1 else f"${value:.2f}"


#: How a number of each unit is written.
_AMOUNTS: Final[dict[str, Callable[[float], str]]] = {
    "share": lambda value: f"{100 * value:.0f} %",
    "times": lambda value: f"{value:.2f}×",
    "usd": _dollars,
    "seconds": lambda value: f"{value:.0f} s",
    "count": lambda value: f"{value:.0f}",
}


def venues(comparison: ModelComparison) -> list[Venue]:
    """The venues of a comparison, with that of portable-pass, which asks for all places at once."""
    seen = {figure.scope.venue for figure in comparison.figures}
    order: list[Venue] = [*comparison.venues(), "any"]
    return [venue for venue in order if venue in seen]


def board(
    comparison: ModelComparison, venue: Venue, *, interval: bool = True
) -> SectionTable | None:
    """A row for each model, the best first, those that lack tasks after the others; a column for
    each metric that anybody has."""
    k = common_k(comparison, venue)
    found = {
        model: [_figure(comparison, model, venue, *column, k) for column in BOARD]
        for model in comparison.models
    }
    shown = [i for i in range(len(BOARD)) if any(_says(row[i]) for row in found.values())]
    rows = {model: [row[i] for i in shown] for model, row in found.items() if any(map(_says, row))}
    if not rows:
        return None
    titles = [next(row[i] for row in found.values() if row[i]) for i in shown]
    whole = {model: " " not in coverage(comparison, model, venue)[0] for model in rows}
    order = sorted(rows, key=lambda model: (not whole[model], -_value(rows[model][0])))
    return SectionTable(
        ("model", "tasks", "samples", *(figure.title for figure in titles if figure)),
        tuple(
            (
                model,
                *coverage(comparison, model, venue),
                *(told(f, interval=interval) for f in rows[model]),
            )
            for model in order
        ),
    )


def common_k(comparison: ModelComparison, venue: Venue) -> int:
    """The largest k that all models have a number for, which is the headline's."""
    metric = "portable_pass" if venue == "any" else "pass"
    for k in sorted(comparison.ks, reverse=True):
        found = [comparison.figure(SampleScope(m, venue), metric, k) for m in comparison.models]
        there = [figure for figure in found if figure and (figure.samples or figure.estimate)]
        if there and all(figure.estimate for figure in there):
            return k
    return min(comparison.ks, default=1)


def coverage(comparison: ModelComparison, model: str, venue: Venue) -> tuple[str, str]:
    """How many of the tasks that anybody has the model has, and how many samples of them."""
    every = [task for task in comparison.tasks if venue in ("any", task.venue) and task.samples]
    own = [task for task in every if task.model == model]
    of = len({_task(task) for task in every})
    counts = sorted({task.samples for task in own})
    samples = str(sum(task.samples for task in own))
    each = "" if len(counts) < 2 else f" ({counts[0]} to {counts[-1]} each)"
    return (str(of) if len(own) == of else f"{len(own)} of {of}"), f"{samples}{each}"


def _task(task: TaskResult) -> tuple[str, ...]:
    return task.op, task.dtype, task.backend, task.target, task.venue


def _figure(
    comparison: ModelComparison,
    model: str,
    venue: Venue,
    metric: str,
    at_k: bool,
    p: float | None,
    k: int,
) -> Figure | None:
    return comparison.figure(SampleScope(model, venue), metric, k if at_k else None, p)


def _says(figure: Figure | None) -> bool:
    """Whether a figure is shown: that there is no time is said, and what a source of samples does
    not have is left out."""
    return bool(figure and (figure.estimate or any(word in figure.reason for word in _WORDS)))


def _value(figure: Figure | None) -> float:
    return figure.estimate.value if figure and figure.estimate else -1.0


def by_place(comparison: ModelComparison, venue: Venue) -> SectionTable | None:
    """pass@k of each model in each place."""
    k = common_k(comparison, venue)
    places = comparison.places
    rows = []
    for model in comparison.models:
        scopes = [SampleScope(model, venue, place.backend, place.target) for place in places]
        figures = [comparison.figure(scope, "pass", k) for scope in scopes]
        if any(figures):
            rows.append((model, *map(told, figures)))
    return SectionTable((f"pass@{k}", *map(str, places)), tuple(rows)) if rows else None


def summary(comparison: ModelComparison, notes: Sequence[str] = ()) -> str:
    """The summary for a terminal: at most 20 lines, notes last."""
    lines = [counts(comparison)]
    for venue in venues(comparison):
        table = board(comparison, venue, interval=False)
        if table:
            lines += [f"{VENUES[venue]}:", *_aligned(table)]
    lines += lead(comparison)
    lines += [f"note: {note}" for note in (*comparison.notes, *notes)]
    if len(lines) > _MOST_LINES:
        left = len(lines) - _MOST_LINES + 1
        lines = [*lines[: _MOST_LINES - 1], f"… {left} more lines are in compare.md"]
    return "\n".join(lines)


def _aligned(table: SectionTable) -> Iterator[str]:
    rows = [tuple(_cut(cell) for cell in row) for row in (table.head, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = (
            cell.ljust(width) if not i else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([f"  {first}", *others]).rstrip()


def _cut(cell: str) -> str:
    return cell if len(cell) <= _NAME_WIDTH else f"{cell[: _NAME_WIDTH - 1]}…"
