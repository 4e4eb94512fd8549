"""Result sets of KernelBench-Hard and -Mega as samples: a ``leaderboard.json`` of one run for each
model and problem, and what people found in them, in it or as ``annotations/RUN.yaml`` beside it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from portkern.agent.attempt import Status
from portkern.errors import ConfigError
from portkern.experiment.compare.sample import Sample
from portkern.spec.foreign_text import Malformed, read_text, yaml_value
from portkern.spec.safe_name import file_of, real_path, short

#: The file's name where a folder is given, and where annotations lie beside it.
FILE: Final = "leaderboard.json"
ANNOTATIONS: Final = "annotations"
#: A model's agents choose among languages for GPUs, and the set does not tell which.
BACKEND: Final = "gpu"
#: The verdict of people that a result was not earned, and the one that the machinery was at fault.
HACK, BUG = "reward_hack", "bug"


def is_set(data: object) -> bool:
    """Whether a document is such a set."""
    return isinstance(data, dict) and isinstance(data.get("models"), list)


def device(data: Mapping[str, Any]) -> str:
    """The name of the hardware that a set is of."""
    hardware = data.get("hardware")
    return str(hardware.get("name", "")) if isinstance(hardware, dict) else ""


def samples(path: Path, data: Mapping[str, Any], target: str) -> Iterator[Sample | str]:
    """A sample for each result, or a line on what is wrong with it."""
    where = _Place(path, device(data), target, _suite(path, data))
    for number, model in enumerate(data["models"]):
        try:
            yield from _of_model(model, where)
        except ConfigError as error:
            yield f"{path}: models[{number}]: {error}"


@dataclass(frozen=True)
class _Place:
    path: Path
    device: str
    target: str
    suite: str


def _suite(path: Path, data: Mapping[str, Any]) -> str:
    """``kernelbench-mega`` where a folder around the file says so, with the set's version."""
    kind = "mega" if "mega" in str(real_path(path).parent).lower() else "hard"
    version = _plain(data.get("environment"))
    return f"kernelbench-{kind}/{version}".rstrip("/")


def _of_model(model: object, where: _Place) -> Iterator[Sample | str]:
    """Raises ConfigError for a model without a name or results."""
    if not isinstance(model, dict) or not isinstance(model.get("results"), dict):
        raise ConfigError("expected an object with label and results")
    name = model.get("label") or model.get("model")
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"label is {str(name)[:60]!r}, expected some text")
    for problem, result in model["results"].items():
        try:
            yield _sample(name, problem, result, where)
        except ConfigError as error:
            yield f"{where.path}: {short(name)} on {short(problem)}: {error}"


def _sample(model: str, problem: str, result: object, where: _Place) -> Sample:
    """Raises ConfigError for what is not a result."""
    if not isinstance(result, dict):
        raise ConfigError(f"got {str(result)[:60]!r}, expected an object")
    correct, written = _flag(result, "correct"), _flag(result, "has_solution")
    if correct and written is False:
        raise ConfigError("correct is true where has_solution is false")
    verdict, words = _found(result, where.path)
    status = _status(result, correct, written, verdict)
    passed = status is Status.PASSED
    share = _number(result, "peak_fraction", 1.0)
    hack = words or f"its judges found: {verdict}" if status is Status.SUSPICIOUS else ""
    return Sample(
        model=model,
        op=problem,
        suite=where.suite,
        backend=BACKEND,
        target=where.target,
        index=0,
        status=status,
        evidence="measured" if passed else "",
        device=where.device,
        efficiency=share if passed and share else None,
        cheat=hack,
        cheats_sought=bool(verdict),
        detail=": ".join(filter(None, (verdict, words))),
        seconds=_number(result, "elapsed_seconds", math.inf),
        path=_plain(result.get("run_id")),
    )


def _status(
    result: Mapping[str, object], correct: bool | None, written: bool | None, verdict: str
) -> Status | None:
    if verdict == BUG or result.get("retryable_infra_failure") is True:
        return None
    if correct and (verdict == HACK or result.get("invalid_reason")):
        return Status.SUSPICIOUS
    if correct:
        return Status.PASSED
    if written is False:
        return Status.NO_CODE
    return None if correct is None else Status.WRONG


def _found(result: Mapping[str, object], path: Path) -> tuple[str, str]:
    """The verdict of people on a run and its words; empty where nobody looked."""
    verdict = result.get("annotation_verdict") or result.get("invalid_reason")
    run = _plain(result.get("run_id"))
    if not run:
        return str(verdict or ""), ""
    beside = file_of(path.parent / ANNOTATIONS, f"{run}.yaml", "annotation")
    if not beside.is_file():
        return str(verdict or ""), ""
    try:
        told = yaml_value(read_text(beside))
    except Malformed as error:
        raise ConfigError(f"{ANNOTATIONS}/{short(run)}.yaml is not YAML: {error}") from error
    told = told if isinstance(told, dict) else {}
    words = " ".join(str(told.get("summary") or "").split())
    return str(verdict or told.get("verdict") or ""), words


def _plain(name: object) -> str:
    """A name that can be one of a file; empty for any other."""
    fits = isinstance(name, str) and re.fullmatch(r"\w[\w.\-\[\]]{0,199}", name, re.ASCII)
    return fits[0] if fits else ""


def _flag(result: Mapping[str, object], name: str) -> bool | None:
    value = result.get(name)
    if value is not None and not isinstance(value, bool):
        raise ConfigError(f"{name} is {str(value)[:60]!r}, expected true, false or nothing")
    return value


def _number(result: Mapping[str, object], name: str, most: float) -> float | None:
    value = result.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        top = "" if most == math.inf else f" and at most {most:g}"
        raise ConfigError(f"{name} is {str(value)[:60]!r}, expected a number of at least 0{top}")
    return float(value)
