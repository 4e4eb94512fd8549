"""``portkern diff A B``: what changed from one run to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import MISSING

from portkern.cli import json_output
from portkern.cli.config import resolve
from portkern.cli.verbs import regressions
from portkern.printable import printable
from portkern.regression import changed_sources, document, past
from portkern.regression.comparison import RunComparison
from portkern.regression.decisions import NightDecisions
from portkern.regression.nights import Night


@dataclass
class DiffOptions:
    before: str = MISSING
    after: str = MISSING
    reports: str = "reports"
    window: int = 0
    all: bool = False
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    """0: nothing regressed; 1: something did; 3: no cell is in both."""
    places = iter(("before", "after"))
    named = [o if "=" in o else f"{next(places, 'option')}={o}" for o in overrides]
    options = resolve("diff", DiffOptions, named)
    reports = Path(options.reports)
    after_folder = regressions.folder(options.after, reports)
    after = Night.read(after_folder)
    before_folder = regressions.folder(options.before, reports, but=after.name)
    before = Night.read(before_folder)
    decisions = NightDecisions.read(reports)
    known = past.before(after, reports, decisions, most=options.window, named=before)
    comparison = RunComparison(before, after, known, decisions, own=True)
    regressions.remarks(comparison)
    code = _exit_code(comparison)
    if options.json:
        json_output.show({**document.content(comparison), "exit_code": code})
        return code
    for line in regressions.lines(comparison, everything=options.all):
        print(printable(line))
    for line in changed_sources.lines(comparison, after_folder, before_folder):
        print(printable(line))
    return code


def _exit_code(comparison: RunComparison) -> int:
    if not comparison.before.cells.keys() & comparison.after.cells:
        return 3
    return 1 if comparison.regressed else 0
