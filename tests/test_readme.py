"""The README shows what the committed records say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from portkern.cli.main import VERBS
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


def test_every_command_it_shows_exists() -> None:
    shown = set(re.findall(r"^\s*(?:\$ |- run: )?portkern ([a-z]+)", README, re.MULTILINE))
    assert len(shown) >= 6
    assert shown <= set(VERBS)


@pytest.mark.full
def test_its_first_example_prints_what_it_says(tmp_path: Path) -> None:
    source = (ROOT / "examples/warp_sum/sum.cu").read_text(encoding="utf-8")
    assert source.partition("\n")[2].strip() in README
    command = [sys.executable, "-m", "portkern.cli", "port", "examples/warp_sum", "to=gfx942"]
    ran = subprocess.run(
        [*command, f"reports={tmp_path}"],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "92"},  # what a page shows without a scroll bar
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    printed = [line.rstrip() for line in ran.stdout.splitlines() if not line.startswith("tree: ")]
    assert "\n".join(printed) in README, ran.stdout
