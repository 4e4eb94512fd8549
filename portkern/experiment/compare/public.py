"""Public result sets as samples: models compared without one in the room.

KernelBench's ``eval_results.json`` does not have the baseline's times, which are a file of their
own; the CSV of kernelbench-v3 has speedups, tokens and costs.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from portkern.agent.attempt import Status
from portkern.errors import ConfigError, RecordError
from portkern.experiment.compare import hard
from portkern.experiment.compare.grouped import by_task
from portkern.experiment.compare.sample import FILE, Sample
from portkern.experiment.compare.task import key_of
from portkern.formats import kernelbench_runs
from portkern.formats.exported import NoSuchForm
from portkern.formats.kernelbench_baseline import KernelBenchBaseline
from portkern.spec import target
from portkern.spec.foreign_text import Malformed, content, json_value, read_text
from portkern.spec.safe_name import real_path, short

T = TypeVar("T")

#: KernelBench's own choice where a run does not say another.
BACKEND: Final = "cuda"
#: kernelbench-v3's agents choose among languages for GPUs, and its table does not tell which.
ANY_BACKEND: Final = "gpu"
NEEDED: Final = ("model", "gpu", "level", "problem", "compiled", "correct", "speedup")
_DTYPES: Final = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8"}


@dataclass(frozen=True)
class Results:
    """``problems`` are rows that cannot be taken, a line each with file and place: the others are
    ``samples`` all the same."""

    samples: list[Sample]
    problems: list[str]


def load(results: Sequence[str], baseline: Path | None = None) -> Results:
    """The samples of results that are given as ``PATH`` or ``MODEL=PATH``. Raises ConfigError,
    one line with file and place, where a file cannot be read or none of its rows can be taken."""
    times = KernelBenchBaseline.read(baseline) if baseline else None
    found: dict[tuple[object, ...], str] = {}
    every = Results([], [])
    for result in results:
        model, named, path = result.rpartition("=")
        own = read(Path(path), model=model if named else "", baseline=times)
        for sample in own.samples:
            key = key_of(sample)
            if found.setdefault(key, path) != path:
                raise ConfigError(
                    f"{path} and {found[key]} both have sample {sample.index} of {sample.model} on "
                    f"{sample.op}; expected one result of each, or models of different names, as "
                    "NAME=PATH"
                )
        every.samples.extend(own.samples)
        every.problems.extend(own.problems)
    return every


def read(path: Path, *, model: str = "", baseline: KernelBenchBaseline | None = None) -> Results:
    """``model`` names the model of a result set that does not. Raises ConfigError."""
    own = path / FILE if path.is_dir() else path
    if path.suffix == ".csv":
        rows = _kernelbench_v3(path)
    elif own.suffix == ".jsonl" and own.exists():
        rows = _own(own)
    elif (board := _leaderboard(path)) is not None:
        rows = board
    else:
        rows = _kernelbench(path, model, baseline)
    known: set[tuple[object, ...]] = set()
    taken = Results([], [])
    for row in rows:
        problem = row if isinstance(row, str) else _unfit(row, known)
        if isinstance(row, str) or problem:
            taken.problems.append(
                problem if problem.startswith(str(path)) else f"{path}: {problem}"
            )
        else:
            known.add(key_of(row))
            taken.samples.append(row)
    if taken.problems and not taken.samples:
        more = len(taken.problems) - 1
        also = f" (and {more} more like it)" if more else ""
        raise ConfigError(f"{taken.problems[0]}{also}")
    return taken


def _unfit(sample: Sample, known: Set[tuple[object, ...]]) -> str:
    """Why a row cannot be compared with others; empty where it can."""
    what = f"Sample {sample.index} of {short(sample.model)} on {short(sample.op)}"
    if key_of(sample) in known:
        return f"{what} is there twice, expected each index once"
    for name in (sample.op, sample.path.partition("#")[0]):
        if ".." in name.replace("\\", "/").split("/") or name.startswith("/"):
            return f"{what} names {short(name)}, expected a name that leads out of no folder"
    try:
        by_task([sample])
    except ValueError as error:
        return str(error)
    return ""


def _own(path: Path) -> Iterator[Sample | str]:
    """The samples of a sweep."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield Sample.from_json(line)
        except RecordError as error:
            yield f"{path}:{number}: {error}"


# ---- KernelBench-Hard and -Mega


def _leaderboard(path: Path) -> Iterator[Sample | str] | None:
    """The samples of such a set, also of the folder that holds it; None of anything else."""
    file = path / hard.FILE if path.is_dir() else path
    if file.suffix != ".json" or not file.is_file():
        return None
    try:
        data = json_value(read_text(file))
    except Malformed:
        return None  # KernelBench's own reader says what is wrong
    if not hard.is_set(data):
        return None
    return hard.samples(file, data, _target(hard.device(data)))


# ---- KernelBench


def _kernelbench(
    path: Path, model: str, baseline: KernelBenchBaseline | None
) -> Iterator[Sample | str]:
    run = kernelbench_runs.read(path)
    yield from (f"{run.folder}: {problem}" for problem in run.problems)
    for one in run.samples:
        level = one.level
        if level is None and baseline:
            level = baseline.only_level
        device = str(one.metadata.get("hardware", ""))
        correct = bool(one.correct)
        runtime = one.runtime_ms if correct else None
        took = baseline.ms(level, one.problem) if baseline else None
        yield Sample(
            model=model or _named(path, run.folder),
            op=_name(level, one.problem, baseline),
            suite="kernelbench" if level is None else f"kernelbench/level{level}",
            backend=_backend(one),
            target=_target(device),
            index=one.sample,
            status=_status(one),
            evidence="measured" if correct else "",
            device=device,
            baseline=baseline.name if baseline and took else "",
            speedup=took / runtime if took and runtime else None,
            us=runtime * 1000 if runtime else None,
            cheats_sought=False,
            detail=_detail(one.metadata),
            path=one.kernel.name if one.kernel else "",
        )


def _named(path: Path, folder: Path) -> str:
    """The file's name where it has one of its own, else the folder's."""
    own = path.suffix == ".json" and path.name != kernelbench_runs.RESULTS
    return path.stem if own else real_path(folder).name


def _name(level: int | None, problem: int, baseline: KernelBenchBaseline | None) -> str:
    known = baseline.problem_name(level, problem) if baseline else ""
    return "/".join(filter(None, [f"level{level}" if level else "", known or str(problem)]))


def _backend(one: kernelbench_runs.KernelBenchSample) -> str:
    if one.kernel is None:
        return BACKEND
    try:
        return kernelbench_runs.backend_of(content(one.kernel).decode())
    except (OSError, UnicodeDecodeError, NoSuchForm):
        return BACKEND  # it has a verdict all the same, which is what counts here


def _status(one: kernelbench_runs.KernelBenchSample) -> Status | None:
    if one.compiled is None:
        return None
    if one.correct:
        return Status.PASSED
    if not one.compiled:
        return Status.BUILD_FAILED
    crashed = any(key in one.metadata for key in ("runtime_error", "cuda_error"))
    return Status.CRASHED if crashed else Status.WRONG


def _detail(metadata: Mapping[str, object]) -> str:
    told = ("compilation_error", "runtime_error", "cuda_error", "correctness_issue", "other_error")
    said = [f"{key}: {metadata[key]}" for key in told if metadata.get(key)]
    if metadata.get("excessive_speedup"):
        said.append("KernelBench finds its speedup excessive")
    return "; ".join(said)[:2000]


# ---- kernelbench-v3


def _kernelbench_v3(path: Path) -> Iterator[Sample | str]:
    """Raises ConfigError for a table that has not its columns."""
    counts: Counter[tuple[str, ...]] = Counter()
    for place, row in _lines(path):
        try:
            if isinstance(row, str):
                raise ConfigError(f"{place} {row}")
            sample = _sample_of_v3(_Cell(place, row))
        except ConfigError as error:
            yield str(error)
            continue
        key = sample.model, *sample.task
        yield sample.model_copy(update={"index": counts[key]})
        counts[key] += 1


def _sample_of_v3(cell: _Cell) -> Sample:
    row = cell.row
    compiled, correct = cell.flag("compiled"), cell.flag("correct")
    if correct and compiled is False:
        raise cell.wrong("correct", "False where it did not compile")
    level = _level(cell.text("level"))
    speedup, took = cell.number("speedup"), cell.number("sol_ms")
    precision = row.get("precision_used", "")
    return Sample(
        model=cell.text("model"),
        op=f"{level}/{cell.text('problem').removesuffix('.py')}",
        suite=f"kernelbench-v3/{level}",
        backend=ANY_BACKEND,
        target=_target(cell.text("gpu")),
        dtype=_DTYPES.get(precision, precision) or "float32",
        index=0,
        status=_ended(compiled, correct),
        evidence="measured" if correct else "",
        device=row["gpu"],
        baseline=row.get("baseline_type", ""),
        # Of what is not correct they have a 0, and of what was not timed none.
        speedup=speedup if correct and speedup else None,
        us=took * 1000 if correct and took else None,
        cheats_sought=False,
        tokens_out=cell.count("total_tokens"),
        usd=cell.number("estimated_cost_usd"),
        path=row.get("solution_link", ""),
    )


def _lines(path: Path) -> Iterator[tuple[str, dict[str, str] | str]]:
    """The lines of a file, each with its place, or what is wrong with it. Raises ConfigError."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        head = next(reader, [])
    except csv.Error as error:
        raise ConfigError(f"{path}:1 is not CSV: {error}") from error
    missing = [name for name in NEEDED if name not in head]
    if missing:
        raise ConfigError(
            f"{path}:1 has no column {missing[0]!r}, expected {', '.join(NEEDED)}; its columns "
            f"are {', '.join(head) or 'none'}"
        )
    try:
        for fields in reader:
            place = f"{path}:{reader.line_num}"
            if fields and len(fields) != len(head):
                yield place, f"has {len(fields)} fields, expected {len(head)}"
            elif fields:
                yield place, dict(zip(head, fields, strict=True))
    except csv.Error as error:  # what follows cannot be told apart
        yield f"{path}:{reader.line_num}", f"is not CSV: {error}"


class _Cell:
    """Reads the cells of one row; an empty one is None, or a ConfigError where a value is
    needed."""

    def __init__(self, place: str, row: Mapping[str, str]) -> None:
        self._place, self.row = place, row

    def wrong(self, name: str, expected: str) -> ConfigError:
        got = self.row[name][:60]
        return ConfigError(f"{self._place}: {name} is {got!r}, expected {expected}")

    def text(self, name: str) -> str:
        if not self.row[name].strip():
            raise self.wrong(name, "some text")
        return self.row[name].strip()

    def flag(self, name: str) -> bool | None:
        known = {"true": True, "false": False, "1": True, "0": False, "": None}
        try:
            return known[self.row[name].strip().lower()]
        except KeyError:
            raise self.wrong(name, "True, False or nothing") from None

    def number(self, name: str) -> float | None:
        return self._read(name, float, "a number of at least 0, or nothing")

    def count(self, name: str) -> int | None:
        return self._read(name, int, "a whole number of at least 0, or nothing")

    def _read(self, name: str, kind: Callable[[str], T], expected: str) -> T | None:
        text = self.row.get(name, "").strip()
        if not text:
            return None
        try:
            value = kind(text)
        except ValueError:
            raise self.wrong(name, expected) from None
        if not 0 <= value < float("inf"):  # type: ignore[operator]
            raise self.wrong(name, expected)
        return value


def _ended(compiled: bool | None, correct: bool | None) -> Status | None:
    if correct:
        return Status.PASSED
    if compiled is False:
        return Status.BUILD_FAILED
    return None if correct is None else Status.WRONG


def _level(text: str) -> str:
    return f"level{text}" if text.isdecimal() else text


def _target(device: str) -> str:
    """The product that a driver calls so, or the device's own name."""
    for name in target.names("product"):
        if any(one in device for one in target.load(name).device_names):
            return name
    return re.sub(r"[^a-z0-9]+", "_", device.lower()).strip("_") or "unknown"
