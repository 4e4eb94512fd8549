"""Presets with kinds of their own (portkern/agent/systems): what tells each system from others
happens, on a scripted model."""

from __future__ import annotations

from pathlib import Path

from tests.preset_pages import started
from tests.scripted import by_prompt, kernel
from tests.test_preset_loops import asked, shown
from tests.test_presets import MACRO, run

# ---- AutoKernel


def test_autokernel_keeps_what_pays_and_undoes_everything_else(tmp_path: Path) -> None:
    """A gain below 1 %, what fails and what is slower is undone; five in a row end it."""
    worths: list[str | float] = [
        1.2,
        1.205,
        "wrong",
        1.1,
        1.5,
        "build_failed",
        1.49,
        1.4,
        1.3,
        "wrong",
    ]
    kernels = [kernel(worth, about=f"k{k}") for k, worth in enumerate(worths)]
    answer = by_prompt({"macro": [MACRO], "micro": kernels})
    played = run(tmp_path, "autokernel", answer, f"source={started(tmp_path / 'given')}")
    assert played.prompts == ["macro", "micro"] * 10 and not played.stopped
    kept = ["0.0", *["1.0"] * 4, *["5.0"] * 5]
    assert played.parents[1:] == [(name,) for name in kept]
    last = asked(played, "macro")[-1]
    assert all(f"- {name}: vectorization" in last for name in ("2.0", "3.0", "9.0")), "the log"
    assert shown(asked(played, "micro")[-1]) == ["k4"]


def test_autokernel_ends_at_twice_the_speed_and_takes_a_shorter_file_that_costs_nothing(
    tmp_path: Path,
) -> None:
    long = "// filled up\n" * 20
    kernels = [kernel(1.2, about=long), kernel(1.195), kernel(1.19, about=long), kernel(2.0)]
    answer = by_prompt({"macro": [MACRO], "micro": kernels})
    played = run(tmp_path, "autokernel", answer, f"source={started(tmp_path / 'given')}")
    assert played.parents[1:] == [("0.0",), ("1.0",), ("2.0",), ("2.0",)]
