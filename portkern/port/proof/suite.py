"""Kernels that a library's own tests launch: these run with its extensions in the executor, as the
original and as the port, and each launch of the one is held against the other's."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from portkern.cuda_source.syntax import SourceKernel
from portkern.errors import BuildError, ConfigError
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.evaluator.jailed_process import JailedProcesses, readable
from portkern.port import library
from portkern.port.hazard import Hazard
from portkern.port.proof import idle, meddling
from portkern.port.proof.compare import Judged
from portkern.port.proof.conclusion import conclude
from portkern.port.proof.examine import Examination, Examiner, Subject
from portkern.port.proof.findings import errors
from portkern.port.proof.outcome import NOT_LAUNCHED, KernelProof, Outcome, ProofLimits, ProofSource
from portkern.port.proof.recording import LaunchRecord
from portkern.port.proof.runs import Program, ProgramNotBuilt, ProgramRun, Runs, Wanted, first_error
from portkern.port.proof.texts import SourceTexts
from portkern.sandbox import message
from portkern.simt.execute.compile_options import CompileOptions, UnmodelledSource
from portkern.simt.torch_extension.suite import MARK, TEST, SuiteRequest, Told
from portkern.spec.foreign_text import json_value
from portkern.spec.target import Target

NO_TEST = "no test launches it"
UNCOUNTED = (
    "which of its instances the tests launch is not known: the port's run with GCC's counts of "
    "coverage says nothing of it"
)
SEVERAL = "kernels of several files have its name, and a launch does not say which it is of"
#: Contents of buffers that a recording of tests holds.
RECORD_BYTES = 256 << 20
_MANIFEST = "modules.json"
_PROCESS = "portkern.port.proof.suite_process"
#: The exit code of pytest where a test fails, and of a script that does.
_TESTS_FAILED = 1
_PYTHON = frozenset(["python", "python3"])


@dataclass(frozen=True)
class SuiteCommand:
    """The tests of a library as they are asked for: pytest, or a script, with its words."""

    kind: Literal["pytest", "script"]
    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> SuiteCommand:
        """Raises ConfigError."""
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ConfigError(
                f"Got tests={text!r}: {error}; expected words as in a shell"
            ) from error
        if words[:1] and words[0] in _PYTHON:
            words = words[1:]
            words = words[1:] if words[:2] == ["-m", "pytest"] else words
        if words[:1] == ["pytest"]:
            return cls("pytest", tuple(words[1:]))
        if words and words[0].endswith(".py"):
            return cls("script", tuple(words))
        raise ConfigError(
            f"Got tests={text!r}, expected 'pytest FILE …' or 'python SCRIPT …'; the arguments of "
            "a program of C++ are arguments="
        )


@dataclass(frozen=True)
class LibraryExtension:
    """One module, by the name that Python imports it by, of the original or of the port. One
    ``of_host`` has no device code, and is left out where it cannot be built here."""

    name: str
    source: ProofSource
    of_host: bool = False


class SuiteRuns(Runs):
    """Builds all extensions of a library, and runs its tests with them in the jail; ``modules`` are
    by the folder of the library, or of its port, that a run begins in a copy of."""

    seals = False

    def __init__(
        self,
        workdir: Path,
        modules: Mapping[Path, Sequence[LibraryExtension]],
        command: SuiteCommand,
        limits: ProofLimits,
        compilers: JailedCompilers,
    ) -> None:
        super().__init__(workdir, workdir, limits, compilers)
        self._modules, self._command = modules, command
        self._seen = {root: self._copies.enter_context(readable(root)) for root in modules}
        self._processes.close()
        self._processes = JailedProcesses([*self._reads, *self._seen.values()])
        #: The tests that the original passes; all are run as long as it is None.
        self.only: tuple[str, ...] | None = None
        #: What became of each test in the last recorded run of a program, by its name.
        self.told: dict[Path, tuple[Told, ...]] = {}
        self._first: ProgramRun | None = None
        self._originals: dict[str, list[LaunchRecord]] = {}
        #: All that the last run printed.
        self.said = ""

    def _build(self, wanted: Wanted) -> Program | ProgramNotBuilt:
        folder = self._folder / f"{wanted.name}-{wanted.target.arch}-{wanted.mode}"
        folder.mkdir(exist_ok=True)
        built: dict[str, str] = {}
        for number, module in enumerate(self._modules[_root(wanted.source)]):
            source = module.source
            options = CompileOptions(
                target=wanted.target,
                language=source.language,
                mode=wanted.mode,
                defines=(*source.defines, f"TORCH_EXTENSION_NAME={module.name.rpartition('.')[2]}"),
                search=source.include,
                timeout_s=self._limits.build_s,
                statements=wanted.mode != "cover",
            )
            out = folder / f"module-{number}" / f"extension-{number}.so"
            out.parent.mkdir(exist_ok=True)
            try:
                self.compilers.program(
                    source.path, out, options, further=source.further, extension=True
                )
            except UnmodelledSource as error:
                if module.of_host:
                    continue
                return ProgramNotBuilt(f"{module.name}: {error.diagnostics[0]}", error.diagnostics)
            except BuildError as error:
                if module.of_host:
                    continue
                return ProgramNotBuilt(f"{module.name}: {first_error(error, source.path.name)}")
            built[module.name] = str(out)
        (folder / _MANIFEST).write_text(json.dumps(built), encoding="utf-8")
        return Program(folder / _MANIFEST, wanted.source, wanted.target, wanted.mode)

    @property
    def programs(self) -> list[Path]:
        """The extensions that the tests' process opens."""
        manifests = (json.loads(path.read_text("utf-8")) for path in super().programs)
        return [Path(library) for built in manifests for library in built.values()]

    def _argv(
        self, program: Program, arguments: Sequence[str] | None, limit_s: float
    ) -> tuple[str, ...]:
        source = program.source
        asked = SuiteRequest(
            self._command.kind,
            self._command.words,
            json.loads(program.path.read_text("utf-8")),
            str(program.target),
            source.language,
            "check" if program.mode == "cover" else program.mode,
            tuple(map(str, source.include)),
            source.defines,
            self._limits.build_s,
            self.only,
        )
        file = program.path.with_name("asked.json")
        file.write_text(json.dumps(asdict(asked)), encoding="utf-8")
        return (sys.executable, "-P", "-m", _PROCESS, str(file))

    def _place(self, program: Program) -> Path:
        return self._seen[_root(program.source)]

    def begin(self, program: Program) -> ProgramRun:
        """Runs all tests of the original, and keeps to those that it passes."""
        self._first = self.run(program)
        told = self.told[program.path]
        self.only = tuple(one.test for one in told if one.outcome == "passed")
        if any(one.outcome == "failed" for one in told) or self._first.is_late:
            first, self._first = self._first, None  # its launches are not all of tests that pass
            self._originals = {}
            return first
        return self._first

    def run(self, program: Program, **how: Any) -> ProgramRun:
        """The output is what became of each test, without what they print."""
        if self._first is not None:  # what an examination runs first is the original as it is
            run, self._first = self._first, None
            return run
        run = super().run(program, **how)
        self.said = run.outcome.output
        told = tuple(told_in(self.said))
        by_test = _by_test(run.launches)
        if how.get("record", True):
            self.told.setdefault(program.path, told)
            self._originals = self._originals or by_test
        lines = [f"{one.test}: {one.outcome}" for one in told]
        ended = replace(run.outcome, output="\n".join(lines))
        if ended.status == _TESTS_FAILED:
            ended = replace(ended, status=0)  # of which each test tells
        return replace(run, outcome=ended, launches=aligned(self._originals, by_test))


def _root(source: ProofSource) -> Path:
    return source.whole[0]


def told_in(output: str) -> Iterator[Told]:
    """The tests that a run told of; the last word counts of one that failed in its end."""
    told: dict[str, Told] = {}
    for line in output.split("\n"):  # what splitlines takes for an end of a line is in the mark
        _, mark, text = line.partition(MARK)
        if not mark:
            continue
        try:
            one = message.read(Told, json_value(text))
        except ValueError:
            continue
        told[one.test] = one
    yield from told.values()


def _by_test(launches: Sequence[LaunchRecord]) -> dict[str, list[LaunchRecord]]:
    """The launches of each test; those of a script, and before the first test, under ''."""
    tests: dict[str, list[LaunchRecord]] = {}
    test = ""
    for launch in launches:
        if launch.kernel.startswith(TEST):
            test = launch.kernel.removeprefix(TEST)
        else:
            tests.setdefault(test, []).append(launch)
    return tests


def aligned(
    originals: Mapping[str, Sequence[LaunchRecord]], own: Mapping[str, Sequence[LaunchRecord]]
) -> tuple[LaunchRecord, ...]:
    """A run's launches in the order of the original's, test by test: a test that went another way
    says nothing of the launches from there on, and nothing of other tests'."""
    found: list[LaunchRecord] = []
    for test, launches in originals.items():
        ours = own.get(test, ())
        same = [a.name == b.name for a, b in zip(launches, ours, strict=False)]
        shared = same.index(False) if False in same else len(same)
        if len(ours) > len(launches) == shared:
            shared -= 1  # it launches more: that there is a difference must not be lost
        where = f" in {test}" if test else ""
        absent = f"the port's host code goes another way from here{where}"
        found += ours[:shared]
        found += [replace(launch, absent=absent, after={}) for launch in launches[shared:]]
    return tuple(found)


@dataclass(frozen=True)
class Suite:
    """The outcome of a library's tests: ``told`` of the original, ``of_port`` of the port, and what
    the examination of their launches says. ``several`` are names that kernels of more than one file
    have. ``problem`` is why it says nothing, ``doubt`` why no run of it proves anything."""

    command: str
    told: tuple[Told, ...] = ()
    of_port: tuple[Told, ...] = ()
    launches: tuple[LaunchRecord, ...] = ()
    examination: Examination | None = None
    problem: str = ""
    several: frozenset[str] = frozenset()
    doubt: str = ""

    @property
    def lines(self) -> list[str]:
        """The account for a reader: how many tests, and what of them is not used, with causes."""
        if self.problem:
            return [f"{self.command}: {self.problem}"]
        passed = [one for one in self.told if one.outcome == "passed"]
        in_port = {one.test for one in self.of_port if one.outcome == "passed"}
        both = sum(one.test in in_port for one in passed)
        lines = [
            f"{self.command}: {len(passed)} of {len(self.told)} tests pass in the original, "
            f"{both} of these in the port; {len(self.launches)} launches of {len(self.classes)} "
            "instances and shapes"
        ]
        causes = Counter(one.why for one in self.told if one.outcome != "passed")
        lines += [f"{count} × not used: {why}" for why, count in causes.most_common()]
        return lines + self._lost

    @property
    def classes(self) -> frozenset[tuple[object, ...]]:
        """The distinct kernel instances and shapes of launches."""
        return frozenset(map(_class_of, self.launches))

    def proof(
        self,
        kernel: SourceKernel,
        originals: SourceTexts,
        ports: SourceTexts,
        hazards: Sequence[Hazard],
    ) -> KernelProof:
        """The proof that the tests amount to for a kernel of these files."""
        own = [launch for launch in self.launches if launch.name == kernel.name]
        shapes = len(set(map(_class_of, own)))
        inputs = (
            f"recorded from {self.command}: {len(own)} launches of {shapes} instances and shapes"
        )
        path = ports.source.path
        if self.examination is None or not own or kernel.name in self.several:
            why = self.problem or (SEVERAL if own else NO_TEST)
            return KernelProof(kernel.name, path, kernel.line, Outcome.UNPROVEN, why)
        texts = [file.file_of(kernel.name) or file.own for file in (originals, ports)]
        subject = Subject(originals.source, ports.source, ports.source, texts[0], texts[1], {})
        proof = conclude(kernel, self.examination, subject, hazards, inputs)
        doubt = self.doubt or self._unexplained or self._idle(kernel)
        if proof.outcome is Outcome.PROVEN and doubt:
            return replace(proof, outcome=Outcome.UNPROVEN, why=doubt)
        return replace(proof, why=proof.why.replace(NOT_LAUNCHED, NO_TEST))

    def _idle(self, kernel: SourceKernel) -> str:
        """The instances of a template that the host's code has and no test launches."""
        known = self.examination.idle.get(kernel.name) if self.examination is not None else None
        if known is None:
            return UNCOUNTED if kernel.template else ""
        names = [f"{kernel.name}<{one}>" for one in known]
        return f"{idle.named(names)}, which no test launches" if names else ""

    @property
    def _unexplained(self) -> str:
        """A test that the port fails although no launch of any kernel is different: its host code
        does something else, and which kernels that concerns is not known."""
        compared = self.examination.compared if self.examination is not None else ()
        judged = {result.judged for each in compared for result in each.results}
        return "" if Judged.DIFFERENT in judged else next(iter(self._lost), "")

    @property
    def _lost(self) -> list[str]:
        in_port = {one.test: one for one in self.of_port}
        passed = [one.test for one in self.told if one.outcome == "passed"]
        lost = [t for t in passed if t not in in_port or in_port[t].outcome != "passed"]
        said = "passes in the original and not in the port"
        return [f"{t} {said}: {in_port[t].why if t in in_port else 'not run'}" for t in lost]


def _class_of(launch: LaunchRecord) -> tuple[object, ...]:
    return launch.kernel, launch.grid, launch.block, launch.shared


def examined(
    command: SuiteCommand,
    text: str,
    original: Sequence[LibraryExtension],
    ported: Sequence[LibraryExtension],
    *,
    vendor: Target,
    target: Target,
    other: Target | None,
    workdir: Path,
    compilers: JailedCompilers,
    limits: ProofLimits,
) -> Suite:
    """The tests in both. What the original does not pass is not run again."""
    joined = [_joined(modules) for modules in (original, ported)]
    modules = {_root(one): own for one, own in zip(joined, (original, ported), strict=True)}
    workdir.mkdir(parents=True, exist_ok=True)
    with SuiteRuns(workdir, modules, command, limits, compilers) as runs:
        first = runs.build_all([Wanted(joined[0], vendor, "check", "original")])[0]
        if isinstance(first, ProgramNotBuilt):
            return Suite(
                text, problem=f"the original is not built for the executor: {first.reason}"
            )
        run = runs.begin(first)
        told = runs.told[first.path]
        if not runs.only:
            return Suite(text, told, problem=_nothing(run, told, runs.said))
        texts = SourceTexts(joined[0]), SourceTexts(joined[1])
        examiner = Examiner(
            runs,
            Subject.of(*texts),
            vendor=vendor,
            target=target,
            other=other,
            mode="check",
            limit_s=limits.run_s,
            kernels=[kernel for file in texts for kernel in file.kernels],
        )
        examination = examiner.examine()
        if examination.problem:
            return Suite(text, told, problem=examination.problem)
        port = runs.build_all([Wanted(joined[1], target, "check", "port")])[0]
        of_port = runs.told.get(port.path, ()) if isinstance(port, Program) else ()
        several, doubt = _several(texts[0]), _doubt(*texts, extensions=runs.programs)
        recorded = examiner.recorded
        return Suite(text, told, of_port, recorded, examination, several=several, doubt=doubt)


def _joined(modules: Sequence[LibraryExtension]) -> ProofSource:
    """All files of the library's modules, as one source."""
    first = modules[0].source
    files = dict.fromkeys(f for m in modules for f in (m.source.path, *m.source.further))
    folders = dict.fromkeys(folder for m in modules for folder in m.source.include)
    return replace(first, further=tuple(files)[1:], include=tuple(folders))


def _several(texts: SourceTexts) -> frozenset[str]:
    """The names that kernels of more than one file have."""
    counts = Counter(name for file in texts.files for name in {k.name for k in file.kernels})
    return frozenset(name for name, count in counts.items() if count > 1)


def _doubt(*texts: SourceTexts, extensions: Iterable[Path] = ()) -> str:
    """Why no run is to be believed: what a library's own code or tests do to processes, and
    what the compiler made of its ``extensions``."""
    python = (file for file in library.texts(_root(texts[0].source), ()) if file.suffix == ".py")
    read = (file.read_text("utf-8", errors="replace") for file in python)
    found = chain(
        map(meddling.meddles, chain((text.whole for text in texts), read)),
        map(meddling.of_built, extensions),
    )
    return next(filter(None, found), "")


def _nothing(run: ProgramRun, told: Sequence[Told], said: str) -> str:
    if told:
        causes = Counter(one.why for one in told)
        return "no test passes in the original: " + "; ".join(
            f"{count} × {why}" for why, count in causes.most_common(5)
        )
    found = errors(run.outcome.findings)
    tail = next(reversed(said.strip().splitlines()), "")
    return f"no test is run: {found[0] if found else tail[:300]}"
