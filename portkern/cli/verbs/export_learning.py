"""``portkern export sft|dpo|rl RUN…``: what models learn from, out of generation runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.cli import json_output
from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError
from portkern.learn import dataset
from portkern.learn.dataset import DataOptions
from portkern.learn.rows import FORMS
from portkern.learn.sample import Collected
from portkern.printable import printable
from portkern.spec.safe_name import SafeName

FORMATS = tuple(FORMS)


@dataclass(frozen=True)
class AskedLearning:
    """``runs``: names below ``reports``."""

    runs: Sequence[str]
    reports: str
    out: str
    options: DataOptions
    json: bool


def write(asked: AskedLearning) -> int:
    """0: there are rows; 3: there are none."""
    collected = Collected()
    for run in asked.runs:
        collected.read(run_folder.run_folder(asked.reports, run))
    made = dataset.build(collected, asked.options)
    first = run_folder.run_folder(asked.reports, asked.runs[0])
    folder = Path(asked.out or first / SafeName(asked.options.form))
    code = 0 if made.train or made.test else 3
    written = dataset.write(made, folder) if code == 0 else []
    if asked.json:
        counts = {"train": len(made.train), "test": len(made.test)}
        said = {"folder": str(folder), **counts, "left_out": dict(made.left_out)}
        json_output.show({**said, "files": [str(p) for p in written], "exit_code": code})
        return code
    where = printable(str(folder))
    print(f"{where}: {len(made.train)} rows for training, {len(made.test)} for tests")
    for why, count in made.left_out.most_common():
        print(f"    left out {count}: {printable(why)}")
    return code


def runs_of(given: Sequence[str]) -> Sequence[str]:
    """Raises ConfigError without one."""
    if not given:
        raise ConfigError("run= is required; 'portkern export --help' says what it takes")
    return given
