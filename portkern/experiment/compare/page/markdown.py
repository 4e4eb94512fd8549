"""``compare.md``: what a sweep found as a comment on GitHub holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from portkern.experiment.compare.page import words
from portkern.experiment.compare.result import ModelComparison, Portability
from portkern.experiment.section import DASH, SectionTable, counted, percent
from portkern.report.markdown import grid, literal

#: The most characters of a comment on GitHub; what does not fit is in the page.
MOST_CHARACTERS: Final = 60_000
_MOST_ROWS: Final = 40


def render(comparison: ModelComparison, *, title: str, facts: Mapping[str, str]) -> str:
    text = ""
    for section in _sections(comparison, title, facts):
        if len(text) + len(section) > MOST_CHARACTERS:
            return f"{text}The rest is in `compare.html`.\n"
        text += f"{section}\n\n"
    return text.rstrip() + "\n"


def _sections(comparison: ModelComparison, title: str, facts: Mapping[str, str]) -> Iterator[str]:
    yield f"# {literal(title)}"
    yield f"{literal(words.counts(comparison))}."
    yield "\n".join(f"- {literal(sentence)}" for sentence in words.lead(comparison))
    yield "\n".join(f"- {literal(name)}: {literal(value)}" for name, value in facts.items())
    yield "\n".join(f"- Note: {literal(note)}" for note in comparison.notes)
    for venue in words.venues(comparison):
        yield from _titled(f"## {words.VENUES[venue]}", words.board(comparison, venue))
        yield from _titled("By place:", words.by_place(comparison, venue))
    yield from _titled("## Which differences are shown", _differences(comparison))
    yield from _titled("## Performance portability", _portability(comparison))
    yield from _titled(
        "## Translation: a kernel of one backend for another", _translation(comparison)
    )
    yield from _titled("## Divergence of code between places", _divergence(comparison))


def _titled(title: str, table: SectionTable | None) -> Iterator[str]:
    if table is None or not table.rows:
        return
    rows = [[literal(cell) for cell in row] for row in table.rows[:_MOST_ROWS]]
    left = len(table.rows) - len(rows)
    more = f"\n\n{left} more are in `compare.html`." if left else ""
    yield f"{title}\n\n{grid(list(map(literal, table.head)), rows)}{more}"


def _differences(comparison: ModelComparison) -> SectionTable:
    order = sorted(comparison.differences, key=lambda d: 2.0 if d.p_holm is None else d.p_holm)
    rows = (("shown" if one.shown else "not shown", one.words) for one in order)
    return SectionTable(("", "in words"), tuple(rows))


def _portability(comparison: ModelComparison) -> SectionTable:
    head = ("model", "efficiency", "PP", "blocked by", "places, the most efficient first")
    return SectionTable(head, tuple(map(_cascade, comparison.cascades)))


def _cascade(one: Portability) -> tuple[str, ...]:
    value = one.reason or DASH if one.value is None else f"{one.value * 100:.0f} %"
    blocked = str(one.blocked) if one.blocked else DASH
    steps = ", ".join(f"{step.place} {step.efficiency * 100:.0f} %" for step in one.steps)
    return one.model, one.kind, value, blocked, steps or DASH


def _translation(comparison: ModelComparison) -> SectionTable:
    rows = (
        (
            one.model,
            one.donor,
            one.backend,
            one.venue or "not known",
            percent(one.estimate),
            counted(one.tasks, "task"),
        )
        for one in comparison.translations
    )
    return SectionTable(("model", "from", "to", "evidence", "pass@1", "over"), tuple(rows))


def _divergence(comparison: ModelComparison) -> SectionTable:
    rows = (
        (one.model, str(one.first), str(one.second), percent(one.estimate))
        for one in comparison.divergences
    )
    return SectionTable(("model", "between", "and", "lines not in common"), tuple(rows))
