"""``portkern run``: a CUDA or HIP program on this CPU, at a GPU's warp width."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from omegaconf import MISSING

from portkern.cli import json_output
from portkern.cli.config import names, quoted, resolve
from portkern.errors import BuildError, ConfigError, no_such
from portkern.evaluator import jailed_process, object_program
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.isa import venue as object_venue
from portkern.printable import printable
from portkern.simt.execute import options as executor
from portkern.simt.execute import program, runtime_library
from portkern.simt.execute.compile_options import (
    COMPILE_TIMEOUT_S,
    CompileOptions,
    UnmodelledSource,
    language_of,
)
from portkern.simt.execute.machine import Language
from portkern.simt.execute.program import ProgramOutcome
from portkern.spec import target as targets
from portkern.spec.foreign_text import content
from portkern.spec.target import Target
from portkern.toolchain.run_tool import accept_foreign
from portkern.toolchain.source_view import SourceView, is_shared
from portkern.worker.protocol import Execute

#: They compare runs or count per kernel; a program runs once and prints what it likes.
_OF_KERNELS = frozenset({"schedule", "width", "counters"})
#: ``source`` runs kernels' source on this CPU, ``object`` executes what AMD's compiler emits.
VENUES = ("source", "object")
#: Lines of a compiler's log that are shown: the first errors and what they quote.
_SHOWN = 40
#: A binding of an extension, unless a comment begins the line.
_EXTENSION = re.compile(r"^(?![ \t]*//).*\b(PYBIND11_MODULE|TORCH_LIBRARY\w*)\s*\(", re.MULTILINE)


@dataclass
class RunOptions:
    source: str = MISSING
    further: list[str] = field(default_factory=list)
    target: str = "sm_90"
    venue: str = "source"
    sanitize: Any = "none"
    include: list[str] = field(default_factory=list)
    define: list[str] = field(default_factory=list)
    timeout_s: float = 60.0
    build_timeout_s: float = COMPILE_TIMEOUT_S
    jail: bool = True
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    own, arguments = _split(overrides)
    options = resolve("run", RunOptions, own)
    source, where = Path(options.source), _target(options.target)
    chosen = _checkers(names(options.sanitize), _venue(options))
    if source.suffix == ".py":
        return _conclude(_run_script(source, where, chosen, options, arguments), options)
    try:
        text = content(source).decode(errors="replace")
    except OSError as error:
        raise ConfigError(f"Cannot read {source}: {error.strerror}") from error
    try:
        if _EXTENSION.search(text):
            return _list_functions(source, where, options)
        with tempfile.TemporaryDirectory(prefix="portkern-run-") as folder:
            outcome = _run(source, where, chosen, Path(folder), options, arguments)
    except BuildError as error:
        return _not_built(error, options)
    return _conclude(outcome, options)


#: Compilers' spellings of options that are lists.
_SHORT = {"-I": "include", "-D": "define"}


def _split(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """``FILE … -I folder -D N=4 key=value … -- ARGS``: overrides, and the program's own arguments.

    Raises ConfigError for a ``-I`` or ``-D`` with nothing behind it."""
    at = given.index("--") if "--" in given else len(given)
    own: list[str] = []
    lists: dict[str, list[str]] = {"include": [], "define": [], "further": []}
    left = iter(given[:at])
    for text in left:
        name, _, value = text.partition("=")
        if text[:2] in _SHORT:
            item = text[2:] or next(left, "")
            if not item:
                raise ConfigError(f"Got {text} with nothing behind it, expected {text} VALUE")
            lists[_SHORT[text[:2]]].append(item)
        elif name in lists and "'" not in value and '"' not in value:
            lists[name] += [item.strip() for item in value.strip("[]").split(",") if item.strip()]
        elif "=" in text:
            own.append(text)
        elif any(option.startswith("source=") for option in own):
            lists["further"].append(text)
        else:
            own.append(f"source={text}")
    own += [f"{name}=[{','.join(map(quoted, items))}]" for name, items in lists.items() if items]
    return own, list(given[at + 1 :])


def _target(name: str) -> Target:
    target = targets.load(name)
    if not target.is_gpu:
        raise ConfigError(f"Got target={name}, expected a GPU such as sm_90 or gfx942")
    return target


def _venue(options: RunOptions) -> str:
    if options.venue not in VENUES:
        raise no_such("venue", options.venue, VENUES)
    if options.venue == "object" and options.source.endswith(".py"):
        raise ConfigError("Got venue=object for a script, expected a HIP program with main()")
    if options.venue == "object" and not options.jail:
        raise ConfigError("Got jail=false, and object code of others is run in the jail alone")
    return options.venue


def _checkers(asked: Sequence[str], venue: str) -> frozenset[str]:
    if venue == "object":
        return _of_objects(asked)
    chosen = executor.checkers(asked)
    if "all" not in asked and chosen & _OF_KERNELS:
        raise ConfigError(
            f"Got sanitize={' '.join(sorted(chosen & _OF_KERNELS))}, expected all, none or of "
            f"{' '.join(name for name in executor.CHECKERS if name not in _OF_KERNELS)}"
        )
    return chosen - _OF_KERNELS


def _of_objects(asked: Sequence[str]) -> frozenset[str]:
    known = [*object_venue.CHECKERS, "all", "none"]
    for name in asked:
        if name not in known:
            raise no_such("checker of objects", name, known)
    return frozenset(object_venue.CHECKERS if "all" in asked else asked) - {"none"}


def _run(
    source: Path,
    target: Target,
    chosen: frozenset[str],
    folder: Path,
    options: RunOptions,
    arguments: Sequence[str],
) -> ProgramOutcome:
    further = list(map(Path, options.further))
    if options.venue == "object":
        return _run_object(source, target, chosen, folder, options, arguments)
    how = _compile_options(target, options, "check" if chosen else "fast")
    language = language_of(source, *further)
    out = folder / source.stem
    if not options.jail:
        from portkern.simt.execute import build

        with accept_foreign():
            built = build.build_program(source, out, how, further=further)
        plain = executor.ExecutorOptions()
        return program.run(
            built,
            plain.checked(chosen) if chosen else plain,
            target=target,
            language=language,
            timeout_s=options.timeout_s,
            arguments=arguments,
        )
    folder.chmod(0o755)  # in the jail, root's processes are nobody's

    def command(compilers: JailedCompilers) -> tuple[str, ...]:
        return str(compilers.program(source, out, how, further=further)), *arguments

    checks = tuple(sorted(chosen))
    return _jailed(source, command, [folder], target, language, checks, options)


def _run_object(
    source: Path,
    target: Target,
    chosen: frozenset[str],
    folder: Path,
    options: RunOptions,
    arguments: Sequence[str],
) -> ProgramOutcome:
    """The host's code here, and the device's as it is compiled for the target."""
    further, how = list(map(Path, options.further)), _compile_options(target, options)
    folder.chmod(0o755)

    def command(compilers: JailedCompilers) -> tuple[str, ...]:
        library, object_ = object_program.build(
            compilers, source, folder / source.stem, how, further=further
        )
        for file in (library, object_):
            file.chmod(0o755)
        checks, limit_s = sorted(chosen), options.timeout_s
        own = object_program.command(library, object_, target, checks, limit_s=limit_s)
        return *own, *arguments

    reads = [folder, *object_program.reads()]
    return _jailed(source, command, reads, target, "hip", (), options, apart=True)


def _jailed(
    source: Path,
    command: Callable[[JailedCompilers], tuple[str, ...]],
    reads: Sequence[Path],
    target: Target,
    language: Language,
    checks: tuple[str, ...],
    options: RunOptions,
    *,
    apart: bool = False,
) -> ProgramOutcome:
    """Runs a command in the jail, in a working folder of its own. The worker gets ready while
    ``command`` builds what it is of, and the compilers end while it runs."""
    reads = [*reads, runtime_library.ready().folder]
    with (
        _working_folder() as here,
        jailed_process.of_command([*reads, here]) as processes,
        JailedCompilers(_view(source, options)) as compilers,
    ):
        processes.begin()
        argv = command(compilers)
        compilers.stop()
        execute = Execute(
            argv,
            str(here),
            str(target),
            language,
            checks,
            options.timeout_s,
            apart=apart,
            sealed=not apart,
        )
        return processes.run(execute).program


def _view(source: Path, options: RunOptions) -> SourceView:
    """The files that the compiler sees, beside itself and its scratch."""
    return SourceView.of([source, *map(Path, options.further)], map(Path, options.include))


def _compile_options(
    target: Target, options: RunOptions, mode: Literal["fast", "check"] = "fast"
) -> CompileOptions:
    return CompileOptions(
        target=target,
        mode=mode,
        defines=options.define,
        search=list(map(Path, options.include)),
        timeout_s=options.build_timeout_s,
    )


@contextmanager
def _working_folder() -> Iterator[Path]:
    """A program finds itself in a copy of the present folder; in an empty one, where that holds
    more than a project."""
    here = Path.cwd()
    if not is_shared(here):
        with jailed_process.readable(here) as seen:
            yield seen
        return
    print(
        f"portkern: the program begins in an empty folder, for {here} holds more than it may see; "
        "start it where its files are",
        file=sys.stderr,
    )
    with tempfile.TemporaryDirectory(prefix="portkern-run-") as empty:
        Path(empty).chmod(0o755)
        yield Path(empty)


def _run_script(
    script: Path,
    target: Target,
    chosen: frozenset[str],
    options: RunOptions,
    arguments: Sequence[str],
) -> ProgramOutcome:
    """A Python script, its extensions of PyTorch built for the executor, in the jail: it can read
    its own folder, the present one and those of includes."""
    from portkern.simt.torch_extension import inline
    from portkern.simt.torch_extension import script as script_runner

    if not script.is_file():
        raise ConfigError(f"Cannot read {script}: no such file")
    with ExitStack() as copies:

        def shown(folder: Path) -> Path:
            return copies.enter_context(jailed_process.readable(folder.absolute()))

        beside, here = shown(script.parent), shown(Path.cwd())
        include = [shown(Path(folder)) for folder in options.include]
        asked = {
            "target": options.target,
            "mode": "check" if chosen else "fast",
            "define": options.define,
            "include": list(map(str, include)),
            "build_timeout_s": options.build_timeout_s,
        }
        own = [sys.executable, "-P", "-m", script_runner.__name__, json.dumps(asked)]
        execute = Execute(
            (*own, str(beside / script.name), *arguments),
            str(here),
            str(target),
            "cuda",
            tuple(sorted(chosen)),
            options.timeout_s + options.build_timeout_s,  # it builds while it runs
        )
        made = inline.prepare(target, ["check" if chosen else "fast"])
        return jailed_process.run(execute, [*made, beside, here, *include])


def _not_built(error: BuildError, options: RunOptions) -> int:
    """Prints the constructs without a model by their numbers, or else what the compiler said."""
    numbered = isinstance(error, UnmodelledSource)
    findings = error.diagnostics if isinstance(error, UnmodelledSource) else ()
    if options.json:
        said = {"built": False, "error": str(error), "log": error.log, "exit_code": error.exit_code}
        json_output.show(said | {"findings": [finding.to_json() for finding in findings]})
        return error.exit_code
    for line in map(str, findings) if numbered else error.log.splitlines()[:_SHOWN]:
        print(printable(line), file=sys.stderr)
    print(f"portkern: error: the program was not built{_why(error)}", file=sys.stderr)
    return error.exit_code


def _why(error: BuildError) -> str:
    if isinstance(error, UnmodelledSource):
        return ": it uses what has no model here"
    return f": {printable(str(error))}"


def _conclude(outcome: ProgramOutcome, options: RunOptions) -> int:
    code = 1 if outcome.status != 0 or outcome.errors else 0
    if options.json:
        findings = [finding.to_json() for finding in outcome.findings]
        said = {"built": True, "status": outcome.status, "output": outcome.output}
        json_output.show(said | {"findings": findings, "exit_code": code})
        return code
    # Who redirects it gets the program's own bytes; a terminal would obey them.
    sys.stdout.write(printable(outcome.output) if sys.stdout.isatty() else outcome.output)
    sys.stdout.flush()
    for finding in outcome.findings:
        print(printable(str(finding)), file=sys.stderr)
    if outcome.status:
        how = (
            f"exited {outcome.status}" if outcome.status > 0 else f"died: signal {-outcome.status}"
        )
        print(f"portkern: the program {how}", file=sys.stderr)
    return code


def _list_functions(source: Path, target: Target, options: RunOptions) -> int:
    """An extension of PyTorch has no main(): its functions are called from Python."""
    with JailedCompilers(_view(source, options)) as compilers:
        found = compilers.extension(source, _compile_options(target, options))
    functions = [
        {"name": name, "signature": signature, "doc": doc} for name, signature, doc in found
    ]
    how = (
        "portkern.simt.execute.build.build_extension builds it, and "
        "portkern.simt.torch_extension.bindings.load calls it from Python"
    )
    if options.json:
        json_output.show({"functions": functions, "how": how, "exit_code": 0})
        return 0
    for function in functions:
        line = f"{function['name']}{function['signature']}  {function['doc']}"
        print(printable(line).rstrip())
    print(f"portkern: {source.name} is an extension of PyTorch: {how}", file=sys.stderr)
    return 0
