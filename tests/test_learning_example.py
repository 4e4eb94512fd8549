"""The example that learns: its policy learns what pays, and its curve is as the page says."""

from __future__ import annotations

import importlib
import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gymnasium", reason="the package gymnasium is not installed")

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "learn_softmax"


class Paying:
    """An evaluator that pays for some of the choices, and has no verdict for one."""

    def reset(self, *, seed: int) -> None:
        pass

    def step(self, action: Any) -> tuple[str, float]:
        from portkern.env import Unavailable

        if list(action) == [0] * len(action):
            raise Unavailable("no verdict")
        return "", 0.3 * (action[0] == 2 and action[2] == 0 and action[3] != 2)


def test_its_policy_learns_what_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)  # it stays in this process
    learn = importlib.import_module("learn")
    curve = learn.learn(1, 20, Paying())
    assert curve[0]["reward"] < 0.15
    assert statistics.fmean(row["reward"] for row in curve[-3:]) > 0.25
    assert statistics.fmean(row["random"] for row in curve) < 0.1


def test_its_page_says_what_its_curve_says() -> None:
    curves = json.loads((FOLDER / "curve.json").read_text())
    page = (ROOT / "docs" / "learn.md").read_text()

    def share(rows: list[dict[str, float]], name: str) -> str:
        return f"{100 * statistics.fmean(row[name] for row in rows) / 0.3:.0f} %"

    for seed, rows in curves.items():
        found = re.search(rf"^\| {seed} \| (.*) \|$", page, re.MULTILINE)
        assert found
        first = next(int(row["step"]) for row in rows if row["reward"] == 0.3)
        said = [share(rows[:3], "reward"), share(rows[-3:], "reward"), share(rows, "random")]
        assert found[1].split(" | ") == [*said, str(first), str(int(rows[-1]["programs"]))]
