"""Runs the tests of a library, or a script, with its extensions in the executor.

Called as ``python -m portkern.port.proof.suite_process FILE``, where FILE is JSON, see
:class:`SuiteRequest`. The library's modules were built before; what is imported by their names is
opened here, and what is put on "cuda" stays on the CPU. What becomes of each test is told by one
line on standard output, which begins with :data:`MARK`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import random
import re
import runpy
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from portkern.simt.execute.compile_options import CompileOptions
from portkern.simt.torch_extension import absent, bindings, script
from portkern.spec import target as targets

if TYPE_CHECKING:
    from portkern.simt.execute.machine import Language
    from portkern.simt.execute.options import Mode

#: Before the JSON of a :class:`Told` line.
MARK = "\x1eportkern-test "
#: Before a test's name in the recording of launches, where it stands for a kernel's.
TEST = "test: "
#: Characters of a test's name, or of its reason, that are told.
MOST_NAME, MOST_REASON = 500, 300
#: Why a test that the time for all of them was over for is not used.
OUT_OF_TIME = "the time for the tests was over before it ended"
#: Where packages lie in a checkout.
_PACKAGES = ("", "src", "python")
#: Classes of errors, by name, of which a test without a network has one.
_NETWORK = frozenset(
    "URLError gaierror ConnectionError ConnectError MaxRetryError NewConnectionError HTTPError "
    "ConnectionRefusedError LocalEntryNotFoundError OfflineModeIsEnabled".split()
)
_GPU = re.compile(
    r"NVIDIA driver|not compiled with CUDA|CUDA driver|No CUDA GPUs|no HIP GPUs|libcuda"
)


@dataclass(frozen=True)
class SuiteRequest:
    """``words`` are those behind pytest, or a script and its arguments. ``modules`` are libraries
    by the names that Python imports them by; ``only`` are the tests to run, all where it is
    None."""

    kind: Literal["pytest", "script"]
    words: tuple[str, ...]
    modules: Mapping[str, str]
    target: str
    language: Language
    mode: Mode
    include: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    build_timeout_s: float = 120.0
    only: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Told:
    """The end of one test; ``why`` is empty for one that passed."""

    test: str
    outcome: Literal["passed", "failed", "skipped"]
    why: str = ""


def cause(error: BaseException) -> str:
    """The reason why a test fails: what it lacks here, else its error."""
    for each in _chain(error):
        names = {kind.__name__ for kind in type(each).__mro__}
        if isinstance(each, ModuleNotFoundError):
            return f"needs the package {each.name}"
        if names & _NETWORK:
            return "needs a network"
        if isinstance(each, FileNotFoundError) and each.filename:
            return f"needs data: {each.filename}"
        if _GPU.search(str(each)):
            return "needs a GPU"
    first = next(iter(str(error).strip().splitlines()), "")
    return f"fails: {type(error).__name__}: {first}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the library's extensions by their names."""

    def __init__(self, libraries: Mapping[str, str]) -> None:
        self._libraries, self._opened = libraries, dict[str, bindings.Extension]()

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        known = fullname in self._libraries
        return importlib.machinery.ModuleSpec(fullname, self) if known else None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(self.open(module.__name__).functions)

    def open(self, name: str) -> bindings.Extension:
        if name not in self._opened:
            extension = bindings.load(Path(self._libraries[name]))
            script.register(extension)
            self._opened[name] = extension
        return self._opened[name]

    def load_library(self, path: object) -> None:
        """Does what torch.ops.load_library does, for a path that ends in a module's name."""
        stem = Path(str(path)).name.partition(".")[0]
        for name in self._libraries:
            if name.rpartition(".")[2] == stem:
                self.open(name)
                return
        raise OSError(f"{path} is not one of the library's modules: {', '.join(self._libraries)}")

    def leave_traces(self, folders: Sequence[Path]) -> None:
        """Empty files where the extensions would lie: some packages look for them first."""
        for name in self._libraries:
            *packages, stem = name.split(".")
            for place in (folder.joinpath(*packages) for folder in folders):
                if place.is_dir():
                    place.joinpath(f"{stem}{importlib.machinery.EXTENSION_SUFFIXES[0]}").touch()

    def forgive(self) -> None:
        """Forgets the fault of a kernel, after which all calls would fail."""
        for extension in self._opened.values():
            extension.reset()


class _Teller:
    """A plugin of pytest: one line for each test, each of which begins with the same seeds."""

    def __init__(
        self,
        tell: Callable[[Told], None],
        only: frozenset[str] | None,
        begin: Callable[[str], None],
        forgive: Callable[[], None],
        *,
        takes_turns: bool = False,
    ) -> None:
        self._tell, self._only, self._begin, self._forgive = tell, only, begin, forgive
        self._takes_turns = takes_turns
        self._ended, self._is_late, self._is_collected = set[str](), False, False

    def leave(self, number: int, frame: object) -> None:
        """Handles the signal that the time is over."""
        self._is_late = True
        raise KeyboardInterrupt

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        self._is_collected = True
        if self._only is not None:
            items[:] = [item for item in items if item.nodeid[:MOST_NAME] in self._only]
        if self._takes_turns:  # the first parameters of each test, then the second ones
            turns, ordered = Counter[str](), list[tuple[int, Any]]()
            for item in items:
                test = item.nodeid.partition("[")[0]
                turns[test] += 1
                ordered.append((turns[test], item))
            items[:] = [item for _, item in sorted(ordered, key=lambda known: known[0])]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            error = str(report.longrepr)
            absent = re.search(r"No module named '([\w.]+)'", error)
            last = next(reversed(error.strip().splitlines()), "").removeprefix("E").strip()
            why = f"needs the package {absent[1]}" if absent else f"is not collected: {last}"
            self._tell(Told(report.nodeid, "failed", why))

    def pytest_runtest_setup(self, item: Any) -> None:
        if self._is_late:  # the test before this one caught it
            raise KeyboardInterrupt
        self._begin(item.nodeid)
        _seed()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._ended.add(nodeid)

    def pytest_sessionfinish(self, session: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._is_late and not self._is_collected:
            self._tell(
                Told("tests", "failed", "the time for the tests was over before all were found")
            )
        for item in session.items if self._is_late else ():
            if item.nodeid not in self._ended:
                self._tell(Told(item.nodeid, "failed", OUT_OF_TIME))

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        if report.when in ("setup", "call", "teardown"):
            self._forgive()
            self._tell(Told(report.nodeid, "failed", cause(call.excinfo.value)))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped:
            why = (
                report.longrepr[2] if isinstance(report.longrepr, tuple) else "is expected to fail"
            )
            self._tell(Told(report.nodeid, "skipped", why))
        elif report.when == "call":
            # One that fails without an error was to fail; of others the error is told next.
            why = "" if report.passed else "is expected to fail"
            self._tell(Told(report.nodeid, "failed" if why else "passed", why))


def _folders() -> list[Path]:
    return [Path.cwd() / place for place in _PACKAGES]


def find_packages() -> None:
    """Lets the library's packages be imported from this folder, and what they need and this
    machine lacks be empty."""
    sys.path[:0] = [str(folder) for folder in _folders() if folder.is_dir()]
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    sys.meta_path.append(absent.Absent(absent.packages(_own_files())))


def _own_files() -> list[Path]:
    """The Python files of the library's packages; tests say themselves what they need."""
    tests = ("test", "tests")
    files = sorted(path for path in Path.cwd().rglob("*.py") if path.name != "setup.py")
    return [path for path in files if not set(tests) & set(path.relative_to(Path.cwd()).parts)]


def _seed() -> None:
    import numpy as np
    import torch

    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def run_tests(
    kind: str,
    words: Sequence[str],
    only: Sequence[str] | None,
    tell: Callable[[Told], None],
    begin: Callable[[str], None],
    forgive: Callable[[], None] = lambda: None,
    within_s: float = 0,
) -> int:
    """Runs the tests, of which ``only`` these where it is not None; ``begin`` is called with the
    name of each, ``forgive`` after one that fails. With ``within_s`` tests that have not ended
    then are told so, and are left; each is begun with its first parameters before any is with its
    second ones."""
    if kind != "pytest":
        return _run_script(words, tell)
    try:
        import pytest
    except ImportError as error:
        raise SystemExit("pytest is not installed; install it beside portkern") from error
    # A file that needs a package which is absent must not end the tests of the others.
    plain = ["-p", "no:cacheprovider", "-o", "addopts=", "-q", "--continue-on-collection-errors"]
    known = None if only is None else frozenset(only)
    teller = _Teller(tell, known, begin, forgive, takes_turns=bool(within_s))
    if within_s:
        signal.signal(signal.SIGALRM, teller.leave)
        signal.setitimer(signal.ITIMER_REAL, within_s)
    return int(pytest.main([*plain, *words], plugins=[teller]))


def _run_script(words: Sequence[str], tell: Callable[[Told], None]) -> int:
    name, *arguments = words
    sys.argv = [name, *arguments]
    sys.path.insert(0, str(Path(name).absolute().parent))
    _seed()
    try:
        runpy.run_path(name, run_name="__main__")
    except SystemExit as left:
        if left.code not in (None, 0):
            tell(Told(name, "failed", f"exits {left.code}"))
            return 1
    except Exception as error:  # whatever a stranger's script raises is its end
        tell(Told(name, "failed", cause(error)))
        raise
    tell(Told(name, "passed"))
    return 0


def main(refused: Callable[[Path], str]) -> int:
    """``refused`` gives the reason why an extension that a test has built may not be opened, or
    ''. Where coverage is counted it is not asked: GCC's own counters write files."""
    asked = SuiteRequest(**json.loads(Path(sys.argv[1]).read_text("utf-8")))
    counts_nothing = asked.mode != "cover"
    target = targets.load(asked.target)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")  # what pytest captures is another

    def tell(told: Told) -> None:
        short = Told(told.test[:MOST_NAME], told.outcome, told.why[:MOST_REASON])
        out.write(f"{MARK}{json.dumps(asdict(short))}\n")
        out.flush()

    modules = _Modules(asked.modules)
    modules.leave_traces(_folders())
    find_packages()
    sys.meta_path.insert(0, modules)
    options = CompileOptions(
        target=target,
        language=asked.language,
        mode=asked.mode,
        defines=list(asked.defines),
        search=[Path(folder) for folder in asked.include],
        timeout_s=asked.build_timeout_s,
        statements=counts_nothing,
    )
    import torch

    operators: Any = torch.ops
    operators.load_library = modules.load_library
    with tempfile.TemporaryDirectory(prefix="portkern-suite-") as place:
        extensions = script.Extensions(Path(place), options)
        if counts_nothing:
            extensions = replace(extensions, refused=refused)
        with script.patch(extensions, target):
            return run_tests(
                asked.kind,
                asked.words,
                asked.only,
                tell,
                lambda test: bindings.mark(f"{TEST}{test}"),
                modules.forgive,
            )
