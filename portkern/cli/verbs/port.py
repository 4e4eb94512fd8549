"""``portkern port``: a CUDA library as HIP (or back), and what is known of each kernel then."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from omegaconf import MISSING

from portkern.agent.budget import GenerationBudget
from portkern.cli import json_output
from portkern.cli.config import Group, Names, names, quoted, resolve
from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError, no_such
from portkern.port import emit_run, hazard, report, result, run, sarif
from portkern.port.proof.suite import SuiteCommand
from portkern.port.request import Arithmetic, PortRequest, Way
from portkern.port.result import PortResult
from portkern.port.translate import Style
from portkern.printable import printable
from portkern.simt.execute import options as executor
from portkern.spec import target as targets
from portkern.spec.safe_name import real_path
from portkern.spec.target import Target

#: The GPU that a way to CUDA is proven for.
_CUDA_TARGET = "sm_90"
_LINT = ("full", "only")
#: A program that runs for longer than this part of the limit is left for its kernels' own cases.
_RUNS = 6
#: Spellings of compilers, and options that are lists.
_SHORT = {"-I": "include", "-D": "define"}
_EXPLAIN = "--explain"
if TYPE_CHECKING:
    from portkern.port.repair.plan import RepairPlan

#: What repair=true is called where generation has its presets.
_PRESETS = ("port_repair",)
#: Below these anything may be set; who takes it checks it.
FREE = ("models", "prices", "budget")
_LISTS = ("to", "include", "define")
#: Free text, which Hydra wants in quotes.
_TEXTS = ("path", "out", "case", "arguments", "tests", "reports", "run", "replay", "sarif")


@dataclass
class PortOptions:
    path: str = MISSING
    to: Names = "gfx942"
    out: str = ""
    in_place: bool = False
    style: str = "hip"
    sanitize: Names = "all"
    lint: str = "full"
    prove: bool = True
    jobs: int = 0
    include: list[str] = field(default_factory=list)
    define: list[str] = field(default_factory=list)
    arguments: str = ""
    arithmetic: str = "float"
    tests: str = ""
    case: str = ""
    timeout_s: float = 120.0
    run: str = ""
    reports: str = "reports"
    fresh: bool = False
    explain: str = ""
    repair: bool = False
    models: Group | None = None
    prices: Group | None = None
    budget: Group | None = None
    patience: int = 3
    seed: int = 0
    cache: bool = True
    replay: str = ""
    sarif: str = ""
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    options = resolve("port", PortOptions, _spelled(overrides), free=FREE)
    if options.explain:
        return _explain(options)
    request, folder = _requested(options)
    plan = _repair_plan(options)
    if options.sarif and not Path(options.sarif).absolute().parent.is_dir():
        raise ConfigError(f"Cannot write sarif={options.sarif}: its folder is not there; make it")
    with run_folder.writing(folder), _progress(options.json) as show:
        ported = run.run(request, folder, show, plan)
        if request.build:
            report.write(ported, folder)
    code = _exit_code(ported, request)
    if options.sarif:
        sarif.write(ported, Path(options.sarif), code)
    if options.json:
        json_output.show(result.document(ported) | {"folder": str(folder), "exit_code": code})
    else:
        _show(ported, folder, request)
    return code


def _explain(options: PortOptions) -> int:
    text = hazard.explain(options.explain)
    if options.json:
        json_output.show({"code": options.explain.upper(), "text": text, "exit_code": 0})
    else:
        print(text)
    return 0


def _requested(options: PortOptions) -> tuple[PortRequest, Path]:
    """Raises ConfigError."""
    path = Path(options.path)
    if options.lint not in _LINT:
        raise no_such("choice of lint", options.lint, _LINT)
    to, chosen = _targets(names(options.to))
    style = _style(options.style, to, chosen)
    name = real_path(path).name or "root"
    reports = real_path(Path(options.reports))
    emitted = () if chosen else tuple(dict.fromkeys(names(options.to)))
    own = "-".join(["port", name, *emitted])
    folder = run_folder.run_folder(options.reports, options.run or own)
    case = Path(options.case) if options.case else None
    if case and not case.is_file():
        raise ConfigError(f"Cannot read case={case}: no such file")
    request = PortRequest(
        path=path,
        to=to,
        targets=chosen,
        emitted=emitted,
        out=Path(options.out) if options.out else folder / "tree",
        in_place=options.in_place,
        style=style,
        sanitize=frozenset(executor.checkers(names(options.sanitize))),
        build=options.lint == "full",
        prove=options.prove and options.lint == "full",
        jobs=options.jobs or len(os.sched_getaffinity(0)),
        include=tuple(map(Path, options.include)),
        defines=tuple(options.define),
        arguments=_words(options.arguments),
        arithmetic=_arithmetic(options, chosen),
        tests=_tests(options, chosen),
        case=case,
        timeout_s=options.timeout_s,
        run_s=options.timeout_s / _RUNS,
        fresh=options.fresh,
        avoid=(reports,) if reports.is_relative_to(real_path(path)) else (),
    )
    return request, folder


def _tests(options: PortOptions, chosen: Sequence[Target]) -> str:
    """Raises ConfigError."""
    if not options.tests:
        return ""
    SuiteCommand.parse(options.tests)
    if not Path(options.path).is_dir():
        raise ConfigError(f"Got tests= for {options.path}, expected the folder of a library")
    if not chosen or options.lint != "full" or not options.prove:
        raise ConfigError(
            "tests= is for proofs on AMD GPUs or CUDA; drop lint=only and prove=false"
        )
    return options.tests


def _arithmetic(options: PortOptions, chosen: Sequence[Target]) -> Arithmetic:
    """Raises ConfigError."""
    if options.arithmetic == "float":
        return "float"
    if options.arithmetic != "ring":
        raise no_such("arithmetic", options.arithmetic, get_args(Arithmetic))
    if not chosen or options.lint != "full" or not options.prove or options.tests:
        raise ConfigError(
            "arithmetic=ring is for proofs on AMD GPUs or CUDA without tests=; "
            "drop lint=only, prove=false and tests="
        )
    return "ring"


def _style(asked: str, to: Way, chosen: Sequence[Target]) -> Style:
    """Raises ConfigError."""
    if asked == "hip":
        return "hip"
    if asked != "single_source":
        raise no_such("style", asked, ("hip", "single_source"))
    if to != "hip" or not chosen:
        raise ConfigError("style=single_source is for to=AMD GPUs, such as to=gfx942")
    return "single_source"


def _repair_plan(options: PortOptions) -> RepairPlan | None:
    """The plan of repairs; None where none is asked for. Raises ConfigError."""
    if not options.repair:
        return None
    if set(names(options.to)) & set(emit_run.WAYS):
        raise ConfigError(f"Got repair=true with to={options.to}, expected AMD GPUs or cuda")
    if options.lint != "full" or not options.prove:
        raise ConfigError("repair=true keeps what is proven; drop lint=only and prove=false")
    from portkern.port.repair.plan import RepairPlan

    return RepairPlan(
        dict(options.models or {}),
        dict(options.prices or {}),
        GenerationBudget.of(options.budget or {}),
        options.patience,
        options.seed,
        options.cache,
        Path(options.replay) if options.replay else None,
    )


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        said = f"Got arguments={text!r}: {error}; expected words as in a shell"
        raise ConfigError(said) from error


def _targets(asked: Sequence[str]) -> tuple[Way, tuple[Target, ...]]:
    """Raises ConfigError."""
    if asked and set(asked) <= set(emit_run.WAYS):
        return "hip", ()
    alone = next((name for name in ("cuda", *emit_run.WAYS) if name in asked), None)
    if alone and len(asked) > 1:
        raise ConfigError(f"Got to=[{','.join(asked)}], expected {alone} alone, or AMD GPUs")
    if alone:
        return "cuda", (targets.load(_CUDA_TARGET),)
    chosen = tuple(dict.fromkeys(targets.load(name) for name in asked))
    for target in chosen:
        if target.vendor != "amd":
            raise ConfigError(f"Got to={target}, expected AMD GPUs such as gfx942, or cuda")
    if not chosen:
        raise ConfigError("Got to=[], expected AMD GPUs such as gfx942, or cuda")
    return "hip", chosen


def _exit_code(ported: PortResult, request: PortRequest) -> int:
    if request.build:
        return ported.exit_code
    hazards = [hazard for file in ported.files for hazard in file.hazards]
    return 1 if ported.unread or any(h.severity == "error" for h in hazards) else 0


def _show(ported: PortResult, folder: Path, request: PortRequest) -> None:
    if not request.build:
        for file in ported.files:
            for item in sorted(file.hazards, key=lambda item: item.line):
                print(printable(report.hazard_line(file.path, item)))
    for file in ported.unread:
        print(printable(f"{file.path}:{file.line}: {file.problem}"), file=sys.stderr)
    for problem in ported.problems:
        print(printable(f"portkern: note: {problem}"), file=sys.stderr)
    for line in ported.tests:
        print(printable(f"tests: {line}"))
    if request.build:
        _table(ported)
    print(printable(result.summary_line(ported)))
    if request.build:
        what = "table, cases" if request.emitted else "patch, table, cases"
        print(f"tree: {printable(str(ported.tree))}; {what}: {printable(str(folder))}/")


def _table(ported: PortResult) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    has_hazards = any(row.hazards for row in ported.rows)
    hazards = ["hazards"] if has_hazards else []
    for title in ("kernel", "outcome", *ported.targets, *hazards, "why"):
        table.add_column(title, overflow="fold")
    for row in ported.rows:
        by_target = {port.target: port for port in row.ports}
        built = [report.resources(by_target[t]) if t in by_target else "" for t in ported.targets]
        colour = "green" if row.good else "red" if row.outcome == "wrong" else "yellow"
        texts = [f"{row.first.kernel} ({row.place})", ported.outcome(row), *built]
        texts += [result.counted(row.hazards)] if has_hazards else []
        texts.append(report.short(row.why))
        cells = [Text(printable(text)) for text in texts]
        cells[1].stylize(colour)
        table.add_row(*cells)
    run_folder.console().print(table)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[run.Progress], None]]:
    """A bar on a terminal, and a line for each file elsewhere."""
    with run_folder.bar(quiet) as update:

        def show(progress: run.Progress) -> None:
            for line in progress.lines if not quiet else ():
                print(printable(line), file=sys.stderr, flush=True)
            update(progress.done, progress.total, progress.lines[-1] if progress.lines else "")

        yield show


def _spelled(given: Sequence[str]) -> list[str]:
    """``PATH … --explain CODE -I folder -D N=4 to=a,b`` as Hydra takes it. Raises ConfigError for
    an option with nothing behind it, and for a preset that there is not."""
    own: list[str] = []
    lists: dict[str, list[str]] = {name: [] for name in _LISTS}
    left = iter(given)
    for text in left:
        name, mark, value = text.partition("=")
        if text[:2] in _SHORT:
            lists[_SHORT[text[:2]]].append(text[2:] or _behind(left, text))
        elif name == _EXPLAIN:
            own += ["path=''", f"explain={value or _behind(left, text)}"]
        elif name == "explain":
            own += ["path=''", text]
        elif name in lists and mark:
            lists[name] += [item.strip(" '\"") for item in value.strip("[]").split(",") if item]
        elif name == "preset" and mark:
            if value not in _PRESETS:
                raise no_such("preset of ports", value, _PRESETS)
            own.append("repair=true")
        elif name in _TEXTS and mark:
            own.append(f"{name}={quoted(value)}")
        elif mark and "/" not in name:
            own.append(text)
        else:
            own.append(f"path={quoted(text)}")
    own += [f"{name}=[{','.join(map(quoted, items))}]" for name, items in lists.items() if items]
    return own


def _behind(left: Iterator[str], option: str) -> str:
    value = next(left, "")
    if not value or (option == _EXPLAIN and "=" in value):
        raise ConfigError(f"Got {option} with nothing behind it, expected {option} VALUE")
    return value
