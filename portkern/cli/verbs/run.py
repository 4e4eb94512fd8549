"""``portkern run``: a CUDA or HIP program on this CPU, at a GPU's warp width."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from portkern.cli.config import names, resolve
from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError
from portkern.simt.execute import build, program
from portkern.simt.execute import options as executor
from portkern.simt.execute.program import ProgramOutcome
from portkern.simt.torch_extension import bindings
from portkern.spec import target as targets
from portkern.spec.target import Target

#: They compare runs or count per kernel; a program runs once and prints what it likes.
_OF_KERNELS = frozenset({"schedule", "width", "counters"})
#: Not in a line that a comment begins.
_EXTENSION = re.compile(r"^(?!\s*//).*\bPYBIND11_MODULE\s*\(", re.MULTILINE)


@dataclass
class RunOptions:
    source: str = MISSING
    target: str = "sm_90"
    sanitize: Any = "none"
    include: list[str] = field(default_factory=list)
    define: list[str] = field(default_factory=list)
    timeout_s: float = 60.0
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    own, arguments = _split(overrides)
    options = resolve("run", RunOptions, own)
    source, where = Path(options.source), _target(options.target)
    chosen = _checkers(names(options.sanitize))
    if options.timeout_s <= 0:
        raise ConfigError(f"Got timeout_s={options.timeout_s:g}, expected it above 0")
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"Cannot read {source}: {error.strerror}") from error
    with tempfile.TemporaryDirectory(prefix="portkern-run-") as folder:
        if _EXTENSION.search(text):
            return _list_functions(source, where, Path(folder), options)
        outcome = _run(source, where, chosen, Path(folder), options, arguments)
    return _conclude(outcome, options)


def _split(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """``FILE key=value … -- ARGS``: overrides, and the program's own arguments."""
    at = given.index("--") if "--" in given else len(given)
    own = [_spelled(text) if "=" in text else f"source={text}" for text in given[:at]]
    return own, list(given[at + 1 :])


def _spelled(override: str) -> str:
    """``define=[N=4]`` as Hydra takes it, which wants quotes around what holds an ``=``."""
    name, _, value = override.partition("=")
    if name != "define" or "'" in value or '"' in value:
        return override
    items = [f"'{item.strip()}'" for item in value.strip("[]").split(",") if item.strip()]
    return f"define=[{','.join(items)}]"


def _target(name: str) -> Target:
    target = targets.load(name)
    if not target.is_gpu:
        raise ConfigError(f"Got target={name}, expected a GPU such as sm_90 or gfx942")
    return target


def _checkers(asked: Sequence[str]) -> frozenset[str]:
    chosen = executor.checkers(asked)
    if "all" not in asked and chosen & _OF_KERNELS:
        raise ConfigError(
            f"Got sanitize={' '.join(sorted(chosen & _OF_KERNELS))}, expected all, none or of "
            f"{' '.join(name for name in executor.CHECKERS if name not in _OF_KERNELS)}"
        )
    return chosen - _OF_KERNELS


def _run(
    source: Path,
    target: Target,
    chosen: frozenset[str],
    folder: Path,
    options: RunOptions,
    arguments: Sequence[str],
) -> ProgramOutcome:
    built = build.build_program(
        source,
        folder / source.stem,
        target=target,
        mode="check" if chosen else "fast",
        defines=options.define,
        search=[Path(one) for one in options.include],
    )
    plain = executor.ExecutorOptions()
    return program.run(
        built,
        plain.checked(chosen) if chosen else plain,
        target=target,
        language=build.language_of(source),
        timeout_s=options.timeout_s,
        arguments=arguments,
    )


def _conclude(outcome: ProgramOutcome, options: RunOptions) -> int:
    code = 1 if outcome.status != 0 or outcome.errors else 0
    if options.json:
        findings = [finding.to_json() for finding in outcome.findings]
        said = {"status": outcome.status, "output": outcome.output, "findings": findings}
        run_folder.print_json(said | {"exit_code": code})
        return code
    sys.stdout.write(outcome.output)
    sys.stdout.flush()
    for finding in outcome.findings:
        print(finding, file=sys.stderr)
    if outcome.status:
        how = (
            f"exited {outcome.status}" if outcome.status > 0 else f"died: signal {-outcome.status}"
        )
        print(f"portkern: the program {how}", file=sys.stderr)
    return code


def _list_functions(source: Path, target: Target, folder: Path, options: RunOptions) -> int:
    """An extension of PyTorch has no main(): its functions are called from Python."""
    library = build.build_extension(
        source,
        folder / f"{source.stem}.so",
        target=target,
        defines=options.define,
        search=[Path(one) for one in options.include],
    )
    extension = bindings.load(library)
    functions = [
        {"name": function.__name__, "signature": str(overload), "doc": function.__doc__ or ""}
        for function in extension.functions.values()
        for overload in function.overloads
    ]
    how = (
        "portkern.simt.execute.build.build_extension builds it, and "
        "portkern.simt.torch_extension.bindings.load calls it from Python"
    )
    if options.json:
        run_folder.print_json({"functions": functions, "how": how, "exit_code": 0})
        return 0
    for function in functions:
        print(f"{function['name']}{function['signature']}  {function['doc']}".rstrip())
    print(f"portkern: {source.name} is an extension of PyTorch: {how}", file=sys.stderr)
    return 0
