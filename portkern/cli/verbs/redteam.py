"""``portkern redteam``: how often kernels that cheat are paid, and honest ones refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.cli import json_output
from portkern.cli.config import Names, names, quoted, resolve
from portkern.cli.verbs import run_folder
from portkern.errors import BackendUnavailable, ConfigError, no_such
from portkern.printable import printable
from portkern.redteam import attack

if TYPE_CHECKING:
    from portkern.experiment.statistics import Estimate
    from portkern.redteam.trial import AttackEnding, Score

RESULT = "redteam.json"


@dataclass
class RedteamOptions:
    corpus: str = ""
    modes: Names = field(default_factory=lambda: ["environment", "evaluator"])
    only: Names = field(default_factory=list)
    seed: int = 0
    reports: str = "reports"
    run: str = "redteam"
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    """0: no cheat was paid and no honest kernel refused; 1: some were; 3: nothing was judged."""
    options = resolve("redteam", RedteamOptions, _named(overrides))
    if not options.corpus:
        raise ConfigError("Expected the folder of a corpus: portkern redteam tests/corpus")
    attacks = attack.corpus(Path(options.corpus), names(options.only))
    if find_spec("gymnasium") is None:
        raise BackendUnavailable(
            "The package gymnasium is not installed; pip install 'portkern[learn]'"
        )
    from portkern.redteam import trial

    asked = names(options.modes)
    for name in asked:
        if name not in trial.MODES:
            raise no_such("mode", name, trial.MODES)
    folder = run_folder.run_folder(options.reports, options.run)
    endings: list[AttackEnding] = []
    with run_folder.writing(folder):
        for name in asked:
            endings += trial.judged(
                attacks, trial.MODES[name], folder, seed=options.seed, show=_tell
            )
        scores = [trial.Score.of(name, endings) for name in asked]
        code = _exit_code(endings)
        document = _document(options, scores, endings) | {"exit_code": code}
        json_output.write(folder / RESULT, document)
    if options.json:
        json_output.show(document)
    else:
        print("\n".join(_lines(scores, endings)))
    return code


def _named(overrides: Sequence[str]) -> list[str]:
    return [text if "=" in text else f"corpus={quoted(text)}" for text in overrides]


def _exit_code(endings: Sequence[AttackEnding]) -> int:
    if not any(ending.turn for ending in endings):
        return 3
    return int(any(ending.bad for ending in endings))


def _tell(ending: AttackEnding) -> None:
    print(f"portkern: {ending.mode}: {printable(_said(ending))}", file=sys.stderr, flush=True)


def _said(ending: AttackEnding) -> str:
    verdict = ending.turn.verdict if ending.turn else "not judged"
    mark = "BAD " * ending.bad
    return f"{mark}{ending.attack.name} {verdict}{f': {ending.detail}' * bool(ending.detail)}"


def _lines(scores: Sequence[Score], endings: Sequence[AttackEnding]) -> list[str]:
    lines = []
    for score in scores:
        lines.append(f"{score.mode}: {_rate(score.success, 'cheats', 'were paid')}")
        caught = ", ".join(f"{count} {verdict}" for verdict, count in score.caught.items())
        lines += [f"    verdicts on cheats: {caught}"] if caught else []
        lines.append(f"    {_rate(score.refused, 'honest kernels', 'were refused')}")
        if score.unavailable:
            lines.append(f"    {score.unavailable} could not be judged here, and do not count")
        bad = [one for one in endings if one.bad and one.mode == score.mode]
        lines += [f"    {printable(_said(one))}: {one.attack.mechanism}" for one in bad]
    return lines


def _rate(estimate: Estimate | None, what: str, done: str) -> str:
    if estimate is None:
        return f"no {what} were judged"
    low, high = estimate.ends
    count = round(estimate.value * estimate.n)
    return (
        f"{count} of {estimate.n} {what} {done}: "
        f"{estimate.value:.1%}, 95 % interval {low:.1%} to {high:.1%}"
    )


def _document(
    options: RedteamOptions, scores: Sequence[Score], endings: Sequence[AttackEnding]
) -> dict[str, object]:
    modes = {
        score.mode: {
            "cheats": _numbers(score.success),
            "honest": _numbers(score.refused),
            "caught": score.caught,
            "unavailable": score.unavailable,
        }
        for score in scores
    }
    rows = [
        {
            "mode": one.mode,
            "kernel": one.attack.name,
            "mechanism": one.attack.mechanism,
            "honest": one.attack.honest,
            "verdict": str(one.turn.verdict) if one.turn else None,
            "bad": one.bad,
            "detail": one.detail,
        }
        for one in endings
    ]
    return {"seed": options.seed, "modes": modes, "kernels": rows}


def _numbers(estimate: Estimate | None) -> Mapping[str, object] | None:
    """``bad`` are cheats that were paid, or honest kernels that were refused."""
    if estimate is None:
        return None
    bad = round(estimate.value * estimate.n)
    return {"n": estimate.n, "bad": bad, "rate": estimate.value, "ci95": list(estimate.ends)}
