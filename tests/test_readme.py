"""The README shows what the committed records say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools import readme

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", readme.PAGES)
def test_its_tables_follow_from_the_committed_records(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert readme.refreshed(page, text) == text, "run `make readme`"


def test_every_speed_it_states_was_measured() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results" / "speed.json").read_text())
    stated = re.findall(r"\| ([\d.]+) (?:s|GiB) \|", README)
    assert stated
    assert {float(number) for number in stated} <= {
        round(value, digits)
        for value in measured.values()
        if isinstance(value, float)
        for digits in (1, 2)
    }


def test_it_stays_short() -> None:
    assert README.count("\n") < 150


def test_every_verb_is_shown() -> None:
    from portkern.cli.main import VERBS

    for verb in VERBS:
        assert f"portkern {verb}" in README
