"""Shows that emitted source computes what its kernel computes: the original in the executor, the
other as it runs here, both on the same inputs."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from portkern.cuda_source.syntax import SourceKernel
from portkern.errors import BackendUnavailable, BuildError, ConfigError
from portkern.evaluator.jailed_compilers import EXECUTABLE, JailedCompilers
from portkern.port.emit.emitted import Emitted, EmittedInstance
from portkern.port.emit_program import EmittedFile, EmittedProgram, argv
from portkern.port.proof import coverage, harness, meddling
from portkern.port.proof.case import Buffer, ProofCase, StructValue
from portkern.port.proof.compare import Judged, LaunchResult, Types, compare
from portkern.port.proof.conclusion import conclude
from portkern.port.proof.element import plain_type
from portkern.port.proof.examine import ORDERS, Compared, Examination, Subject
from portkern.port.proof.findings import errors
from portkern.port.proof.guesses import settled
from portkern.port.proof.infer import SCALES, propose
from portkern.port.proof.infer import Refused as NoCase
from portkern.port.proof.outcome import KernelProof, Outcome, ProofLimits, ProofSource, TextCoverage
from portkern.port.proof.recording import LaunchRecord
from portkern.port.proof.runs import Program, ProgramNotBuilt, ProgramRun, Runs, Wanted
from portkern.port.proof.texts import SourceTexts
from portkern.spec import registry
from portkern.spec import target as targets
from portkern.spec.backend import Missing
from portkern.toolchain import compilers
from portkern.toolchain.source_view import SourceView

_ORIGINAL = "sm_90"
_HOW = {"cpu": "this CPU", "opencl": "OpenCL"}
_DISAGREE = "disagree on whether they reach a barrier"


@dataclass(frozen=True)
class _Trial:
    instance: EmittedInstance
    case: ProofCase


class EmittedProver:
    """Proves the source that is emitted for the kernels of one source. Raises BackendUnavailable
    where nothing runs what is emitted, WorkerError where this machine cannot contain a process."""

    def __init__(
        self,
        texts: SourceTexts,
        way: str,
        cases: Mapping[str, ProofCase],
        workdir: Path,
        limits: ProofLimits,
        keep: Path | None = None,
    ) -> None:
        """Counter-examples are left in ``keep``."""
        self._texts, self._way, self._cases, self._limits = texts, way, cases, limits
        self._workdir, self._keep = workdir, keep
        #: Why the emitted source of a kernel is not built, by its name.
        self.not_built: dict[str, str] = {}
        self._environment = environment(way)
        self._compiler = _compiler()
        self._vendor = targets.load(_ORIGINAL)
        workdir.mkdir(parents=True, exist_ok=True)
        workdir.chmod(0o755)  # in the jail, root's processes are nobody's
        view = texts.source.view.joined(SourceView((workdir.absolute(),)))
        self._compilers = JailedCompilers(view)
        home = texts.source.path.parent
        self._runs = Runs(workdir / "build", home, limits, self._compilers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runs.__exit__(kind, error, trace)
        self._compilers.close()

    def prove(self, files: Sequence[EmittedFile]) -> Iterator[KernelProof]:
        """The proofs of the files' kernels, in the order of the files."""
        trials = {file.emitted.kernel.name: self._trials(file.emitted) for file in files}
        known = {name: own for name, own in trials.items() if not isinstance(own, NoCase)}
        together = [trial for own in known.values() for trial in own]
        program = self._original(together, "all") if together else ProgramNotBuilt("")
        first = 0
        for file in files:
            kernel = file.emitted.kernel
            own = trials[kernel.name]
            if isinstance(own, NoCase):
                yield self._proof(kernel, Outcome.UNPROVEN, own.reason)
            elif isinstance(program, Program):
                yield self._proven(file, own, program, first)
                first += len(own)
            else:
                single = self._original(own, kernel.name)
                yield self._proven(file, own, single, 0)

    def _proof(
        self, kernel: SourceKernel, outcome: Outcome, why: str, inputs: str = ""
    ) -> KernelProof:
        return KernelProof(kernel.name, self._texts.source.path, kernel.line, outcome, why, inputs)

    # ---- cases

    def _trials(self, emitted: Emitted) -> list[_Trial] | NoCase:
        trials = []
        for instance in emitted.instances:
            for scale in SCALES:
                case = self._cases.get(emitted.kernel.name) or propose(
                    emitted.kernel, self._texts, scale, warp=32
                )
                if isinstance(case, NoCase):
                    return case
                if isinstance(case.shared, str):
                    return NoCase(f"its shared memory is known to compilers of CUDA: {case.shared}")
                if self._way == "opencl" and any(
                    isinstance(a, StructValue) for a in case.arguments
                ):
                    return NoCase("it takes a struct by value, which no kernel of OpenCL is given")
                try:
                    trials.append(_Trial(instance, _typed(emitted.kernel, case, instance)))
                except ConfigError as error:
                    return NoCase(str(error))
        return trials

    # ---- the original

    def _original(self, trials: Sequence[_Trial], name: str) -> Program | ProgramNotBuilt:
        source = self._texts.source
        path = self._workdir / "cases" / f"case_{name}{harness.suffix(source.language)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = harness.render(
            [trial.case for trial in trials],
            _openmp(self._texts) + f'#include "{source.path.name}"',
            source.language,
            known={**self._texts.rows, **self._texts.aliases},
            scopes={k.name: self._texts.own.scope_of(k) for k in self._texts.own.kernels},
            title=f"Kernels of {source.path.name}",
            command="",
        )
        path.write_text(text, encoding="utf-8")
        include = (*source.include, source.path.parent.absolute())
        wanted = replace(source, path=path, include=include)
        counted = Wanted(wanted, self._vendor, "cover", name)
        checked = Wanted(wanted, self._vendor, "check", name)
        return self._runs.build_all([checked, counted])[0]

    def _run(
        self, program: Program, number: int, order: int = -1, *, record: bool = True
    ) -> ProgramRun:
        name, seed = ORDERS[order] if order >= 0 else ("forward", 1)
        return self._runs.run(
            program, order=name, seed=seed, arguments=[str(number)], record=record
        )

    # ---- one kernel

    def _proven(
        self,
        file: EmittedFile,
        trials: Sequence[_Trial],
        program: Program | ProgramNotBuilt,
        first: int,
    ) -> KernelProof:
        """The proof of a kernel's emitted source in all its instances: the first that is not
        proven speaks for it."""
        kernel = file.emitted.kernel
        if isinstance(program, ProgramNotBuilt):
            why = f"the original's case is not built: {program.reason}"
            return self._proof(kernel, Outcome.UNPROVEN, why)
        proofs = []
        for instance in file.emitted.instances:
            own = [(n, t) for n, t in enumerate(trials, first) if t.instance == instance]
            number, trial = self._chosen(program, own)
            proofs.append(self._examined(file, trial, program, number))
            if proofs[-1].outcome is not Outcome.PROVEN:
                return proofs[-1]
        notes = [*file.emitted.notes, proofs[0].why]
        return replace(proofs[0], why="; ".join(filter(None, notes)))

    def _chosen(self, program: Program, trials: Sequence[tuple[int, _Trial]]) -> tuple[int, _Trial]:
        """The first that the original does without a finding; else the first."""
        for number, trial in trials:
            run = self._run(program, number, record=False)
            if run.outcome.status == 0 and not errors(run.outcome.findings):
                return number, trial
        return trials[0]

    def _examined(
        self, file: EmittedFile, trial: _Trial, program: Program, number: int
    ) -> KernelProof:
        kernel = file.emitted.kernel
        inputs = str(trial.case)
        original = self._run(program, number)
        if not original.launches or original.launches[0].failed:
            why = "the original's launch fails on the inputs that were made up"
            return self._proof(kernel, Outcome.UNPROVEN, why, inputs)
        emitted = self._program(file, trial)
        built = self._built(emitted)
        if isinstance(built, ProgramNotBuilt):
            self.not_built[kernel.name] = built.reason
            why = f"the emitted source is not built: {built.reason}"
            return self._proof(kernel, Outcome.UNPROVEN, why, inputs)
        run = self._runs.run(built)
        if problem := self._stopped(kernel, run, inputs):
            return self._kept(emitted, problem)
        launches = [_renumbered(run.launches[0], original.launches[0])]
        types = Types([kernel], self._texts.aliases, self._texts.records)
        results = compare(original.launches[:1], launches, types)
        unstable = self._unstable(program, number, original, results, types)
        checked = self._run(program, number, record=False)
        examination = Examination(
            compared=(Compared(_HOW[self._way], results),),
            original_findings=errors(checked.outcome.findings),
            unstable=unstable,
            coverage=self._covered(program, number),
        )
        own, source = self._texts.own, self._texts.source
        subject = Subject(source, source, source, own, own, self._texts.aliases)
        concluded = settled(conclude(kernel, examination, subject, (), inputs), trial.case.guesses)
        [proof] = meddling.doubted([concluded], self._texts, programs=self._runs.programs)
        return self._kept(emitted, proof, results)

    def _stopped(self, kernel: SourceKernel, run: ProgramRun, inputs: str) -> KernelProof | None:
        if run.launches and run.outcome.status == 0:
            return None
        said = (run.outcome.output.strip().splitlines() or ["no message"])[-1][:300]
        if run.is_late:
            said = f"the emitted code did not end in {self._limits.run_s:g} s"
            return self._proof(kernel, Outcome.UNPROVEN, said, inputs)
        if said.startswith("OpenCL:"):
            self.not_built[kernel.name] = said
        status = run.outcome.status or 0
        if status < 0 and _DISAGREE not in said:
            why = f"the emitted code dies of signal {-status}: {said}"
            return self._proof(kernel, Outcome.WRONG, why, inputs)
        return self._proof(kernel, Outcome.UNPROVEN, said, inputs)

    def _unstable(
        self,
        program: Program,
        number: int,
        original: ProgramRun,
        results: Sequence[LaunchResult],
        types: Types,
    ) -> Mapping[int, LaunchResult]:
        differing = (Judged.REORDERED, Judged.DIFFERENT)
        if not any(result.judged in differing for result in results):
            return {}
        unstable: dict[int, LaunchResult] = {}
        for order in range(len(ORDERS)):
            run = self._run(program, number, order)
            for result in compare(original.launches[:1], run.launches[:1], types):
                if result.judged in differing:
                    unstable[result.number] = result
        return unstable

    def _covered(self, program: Program, number: int) -> Mapping[str, TextCoverage]:
        wanted = Wanted(program.source, self._vendor, "cover", _name_of(program))
        counted = self._runs.build_all([wanted])[0]
        if isinstance(counted, ProgramNotBuilt):
            return {}
        run = self._run(counted, number, record=False)
        own = self._texts.own
        found = coverage.reports(counted.notes, run.counts, self._compilers)
        counts = coverage.counted(own.path, found)
        return coverage.of_kernels(own.kernels, counts)

    # ---- what was emitted

    def _program(self, file: EmittedFile, trial: _Trial) -> EmittedProgram:
        known = self._texts.aliases
        case = _plain(trial.case, known)
        return EmittedProgram(self._way, file, trial.instance, case, known, self._environment)

    def _built(self, program: EmittedProgram) -> Program | ProgramNotBuilt:
        folder = self._workdir / "build" / f"{program.instance.name}-{self._way}"
        path = program.write(folder)
        try:
            self._compilers.tool(
                argv(self._compiler, path, Path("program")),
                folder,
                timeout_s=self._limits.build_s,
                made=["program"],
            )
            (folder / "program").chmod(EXECUTABLE)
        except BuildError as error:
            lines = [line for line in error.log.splitlines() if "error" in line.lower()]
            return ProgramNotBuilt((lines or [str(error)])[0].strip()[-300:])
        return Program(folder / "program", ProofSource(path, "cuda"), self._vendor, "fast")

    def _kept(
        self, program: EmittedProgram, proof: KernelProof, results: Sequence[LaunchResult] = ()
    ) -> KernelProof:
        """The proof, with a counter-example where it is wrong."""
        if proof.outcome is not Outcome.WRONG or self._keep is None:
            return proof
        found = next((result.difference for result in results if result.difference), None)
        path, command = program.keep(self._keep, self._compiler, proof.why, found)
        return replace(proof, counterexample=path, command=command)


def environment(way: str) -> Mapping[str, str]:
    """The environment variables that running the emitted source needs. Raises BackendUnavailable
    where nothing here can run it."""
    if way == "opencl":
        host = targets.load(_machine())
        backend = registry.load("opencl")
        venue = backend.venues(host).best
        if isinstance(venue, Missing):
            raise BackendUnavailable(f"OpenCL cannot be run here: {venue}")
        return backend.environment(host)
    return {}


def _compiler() -> compilers.Compiler:
    """Raises BackendUnavailable."""
    compiler = compilers.compiler(_machine())
    if isinstance(compiler, Missing):
        raise BackendUnavailable(str(compiler))
    return compiler


def _machine() -> str:
    return platform.machine().replace("arm64", "aarch64")


def _openmp(texts: SourceTexts) -> str:
    """A program is linked with OpenMP where its first file asks for it."""
    return "#include <omp.h>\n" if "<omp.h>" in texts.whole else ""


def _name_of(program: Program) -> str:
    return program.source.path.stem.removeprefix("case_")


def _typed(kernel: SourceKernel, case: ProofCase, instance: EmittedInstance) -> ProofCase:
    """The case with an instance's arguments of the template. Raises ConfigError."""
    bound = dict(zip((p.name for p in kernel.template), instance.template, strict=False))
    types = []
    for parameter, argument in zip(kernel.parameters, case.arguments, strict=False):
        spelled = plain_type(parameter.type)
        name = spelled.rstrip("*&[]") if isinstance(argument, Buffer) else spelled.rstrip("&")
        types.append(bound.get(name, name))
    typed = replace(case, template=instance.template).with_types(types)
    whole = [
        replace(a, values="range(0,4)")
        if isinstance(a, Buffer) and a.values == "normal" and not _is_float(a.dtype)
        else a
        for a in typed.arguments
    ]
    return replace(typed, arguments=tuple(whole))


def _is_float(dtype: str) -> bool:
    return not re.fullmatch(r"(unsigned\s*)?(int|char|short|long|bool|u?int\d+_t).*", dtype)


def _plain(case: ProofCase, known: Mapping[str, str]) -> ProofCase:
    """The case with types that need none of the source's own names."""
    types = []
    for argument in case.arguments:
        name = argument.dtype
        for _ in range(4):
            name = known.get(name, name)
        types.append(name)
    return case.with_types(types)


def _renumbered(launch: LaunchRecord, original: LaunchRecord) -> LaunchRecord:
    """The launch with the original's numbers of buffers, which it allocates in the same order."""
    own = sorted(launch.before)
    numbers = dict(zip(own, sorted(original.before)[-len(own) :] if own else [], strict=False))
    return replace(
        launch,
        arguments=tuple((numbers[n], offset) for n, offset in launch.arguments if n in numbers),
        before={numbers[n]: digest for n, digest in launch.before.items() if n in numbers},
        after={numbers[n]: content for n, content in launch.after.items() if n in numbers},
    )
