"""One program and its port, run against each other: at both widths, in other orders of threads and
under the sanitizers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from portkern.cuda_source.syntax import SourceKernel
from portkern.port.proof import algebra, coverage, text_output
from portkern.port.proof.compare import Judged, LaunchResult, Noise, Types, compare
from portkern.port.proof.findings import Inheritance, Text, errors, hanging, inheritable, is_race
from portkern.port.proof.outcome import MORE_UNITS, Algebra, ByAlgebra, ProofSource, TextCoverage
from portkern.port.proof.recording import LaunchRecord, kernel_name
from portkern.port.proof.records import StructClass
from portkern.port.proof.runs import Program, ProgramNotBuilt, ProgramRun, Runs, Wanted
from portkern.port.proof.texts import SourceTexts
from portkern.simt import diagnostics
from portkern.simt.diagnostics import Diagnostic, Severity
from portkern.simt.execute import machine
from portkern.simt.execute.options import Mode, Order
from portkern.simt.execute.ring import Ring
from portkern.spec.target import Target

#: The orders beside the one that all runs have first.
ORDERS: tuple[tuple[Order, int], ...] = (("reverse", 1), ("random", 1))
#: A launch that does not end accuses a port only where its original ends at once.
_LATE, _QUICK_S = "SX405", 2.0
#: What is looked at of a program that does not end: sanitizers take so many times as long.
_PART = 8
#: Host code ran beside a kernel, whose memory is open to the whole process then.
_BESIDE = "SX120"
#: The executor of compiled code cannot run it.
_UNMODELLED, _KEPT_BACK = "SX701", "SX703"
#: Rounding of a launch enters the next: what compiled code rounds otherwise is looked at so often.
_ROUNDS = 4
#: The names by which a program asks how many multiprocessors the GPU has.
_UNITS = re.compile(r"multi_?processor_?count|MaxPotentialBlockSize", re.IGNORECASE)
_BY_SCHEDULE = (Judged.REORDERED, Judged.DIFFERENT)


@dataclass(frozen=True)
class Subject:
    """The two texts, each as what is built and as the file that its kernels stand in;
    ``ported_other`` is what is built for the other width. ``known`` says what names of types stand
    for; ``headers`` are the port's other files, ``pairs`` files of both by name,
    ``records`` the classes that they define."""

    original: ProofSource
    ported: ProofSource
    ported_other: ProofSource
    original_text: Text
    ported_text: Text
    known: Mapping[str, str]
    headers: tuple[Text, ...] = ()
    pairs: tuple[tuple[Text, Text], ...] = ()
    records: Mapping[str, StructClass] = field(default_factory=dict)

    @classmethod
    def of(cls, originals: SourceTexts, ports: SourceTexts) -> Subject:
        """A whole program, built alike for both widths."""
        return cls(
            originals.source,
            ports.source,
            ports.source,
            originals.own,
            ports.own,
            {**ports.aliases, **originals.aliases},
            ports.files[1:],
            originals.paired(ports),
            {**ports.records, **originals.records},
        )


@dataclass(frozen=True)
class Compared:
    """A run of the port beside the original's first; ``how`` names it. ``findings`` are those of a
    run of what is compiled."""

    how: str
    results: tuple[LaunchResult, ...]
    findings: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class Examination:
    """``problem``: why nothing is known of any kernel; ``unmodelled`` where the executor lacks
    something. ``unstable`` are launches of the original whose results change with the order of its
    threads by more than rounding, ``noisy`` kernels that were allowed what it changes by rounding.
    ``executed`` are runs of what is compiled for a target, ``unexecuted`` why there is none.
    ``notes`` are of the program as a whole, ``algebra`` is what runs on elements of a ring say,
    ``idle`` are the instances of kernels that the program has and its run did not launch."""

    problem: str = ""
    unmodelled: tuple[Diagnostic, ...] = ()
    compared: tuple[Compared, ...] = ()
    findings: tuple[Diagnostic, ...] = ()
    original_findings: tuple[Diagnostic, ...] = ()
    unstable: Mapping[int, LaunchResult] = field(default_factory=dict)
    noisy: frozenset[str] = frozenset()
    coverage: Mapping[str, TextCoverage] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    executed: tuple[Compared, ...] = ()
    unexecuted: tuple[str, ...] = ()
    algebra: Mapping[str, Algebra] = field(default_factory=dict)
    idle: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass
class _Progress:
    runs: list[tuple[str, ProgramRun]] = field(default_factory=list)
    noise: dict[tuple[int, int], float] = field(default_factory=dict)
    compared: list[Compared] = field(default_factory=list)
    findings: list[Diagnostic] = field(default_factory=list)
    original_findings: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    executed: list[Compared] = field(default_factory=list)
    unexecuted: list[str] = field(default_factory=list)


class Examiner:
    """``mode`` is that of the runs which are compared; sanitizers have a checked build. One of
    ``one_kernel`` is not run again once that hangs: no order or checker ends it. One that does not
    end in time with its ``arguments`` has the first ``smaller`` ones with which it ends; if there
    are none, it ends after its first ``launches``. ``kernels`` are those of other files than the
    subject's two."""

    def __init__(
        self,
        runs: Runs,
        subject: Subject,
        *,
        vendor: Target,
        target: Target,
        other: Target | None,
        mode: Mode,
        limit_s: float,
        arguments: Sequence[str] | None = None,
        smaller: Sequence[Sequence[str]] = (),
        one_kernel: bool = False,
        objects: Sequence[Target] = (),
        kernels: Sequence[SourceKernel] = (),
        ring: bool = False,
    ) -> None:
        self._runs, self._subject, self._mode = runs, subject, mode
        self._vendor, self._target, self._other = vendor, target, other
        self._limit_s, self._smaller, self._one_kernel = limit_s, smaller, one_kernel
        self.arguments, self.launches, self._objects = arguments, 0, objects
        self.recorded: tuple[LaunchRecord, ...] = ()
        own = (*subject.ported_text.kernels, *subject.original_text.kernels)
        self._types = Types((*kernels, *own), subject.known, subject.records)
        self._progress = _Progress()
        self._ring = Ring.drawn() if ring else None
        self._algebra: Mapping[str, Algebra] = {}
        self._idle: dict[str, tuple[str, ...]] = {}

    def examine(self) -> Examination:
        wanted = self._wanted()
        built = dict(zip(wanted, self._runs.build_all(list(wanted.values())), strict=True))
        for name in ("original", "port"):
            program = built[name]
            if isinstance(program, ProgramNotBuilt):
                whose = "the original" if name == "original" else "the port"
                why = f"{whose} is not built for the executor: {program.reason}"
                return Examination(why, program.unmodelled)
        programs = {n: p for n, p in built.items() if isinstance(p, Program)}
        first = self._first(programs["original"])
        self.recorded = first.launches
        if problem := self._cannot_serve(first):
            found = errors(first.outcome.findings)
            return Examination(problem, original_findings=found)
        self._progress.original_findings += inheritable(first.outcome.findings)
        self._compare_widths(first, programs)
        if self._ring is not None and not self._is_decided():
            self._algebra = self._by_algebra(self._ring, built)
        for target in self._objects:
            self._execute(first, built[_as_object(target)], target)
        if self._is_decided():
            return self._concluded({}, {})
        checked = self._sanitize(programs)
        unstable = self._unstable(first, programs["original"])
        if checked is not None:
            self._progress.unfinished += self._went_otherwise(checked, unstable)
            self._progress.unfinished[:0] = self._on_more_units(checked, programs)
        return self._concluded(unstable, self._covered(programs))

    def _wanted(self) -> dict[str, Wanted]:
        original, ported = self._subject.original, self._subject.ported
        wanted = {
            "original": Wanted(original, self._vendor, self._mode, "original"),
            "port": Wanted(ported, self._target, self._mode, "port"),
        }
        if self._other is not None:
            source = self._subject.ported_other
            wanted["other"] = Wanted(source, self._other, self._mode, "other")
        if self._mode != "check":
            wanted["original checked"] = Wanted(original, self._vendor, "check", "original")
            wanted["port checked"] = Wanted(ported, self._target, "check", "port")
        for target in self._objects:
            source = ported if target == self._target else self._subject.ported_other
            wanted[_as_object(target)] = Wanted(source, target, "fast", "port", executed=True)
        if self._ring is not None:
            wanted["original ring"] = Wanted(original, self._vendor, "ring", "original")
            wanted["port ring"] = Wanted(ported, self._target, "ring", "port")
            if self._other is not None:
                source = self._subject.ported_other
                wanted["other ring"] = Wanted(source, self._other, "ring", "other")
        wanted["port counted"] = Wanted(ported, self._target, "cover", "port")
        return wanted

    def _run(
        self,
        program: Program,
        order: Order = "forward",
        seed: int = 1,
        *,
        record: bool = True,
        ring: Ring | None = None,
        used: bool = True,
    ) -> ProgramRun:
        run = self._runs.run(
            program,
            order=order,
            seed=seed,
            arguments=self.arguments,
            record=record,
            launches=self.launches,
            ring=ring,
        )
        return self._used(run) if used else run

    def _used(self, run: ProgramRun) -> ProgramRun:
        """The same, with what makes it say less than it might among what is unfinished."""
        for found in run.outcome.findings:
            cut_off = diagnostics.cut_off(found)
            is_error = cut_off is not None and cut_off.severity is Severity.ERROR
            said = str(replace(found, count=1))
            if (is_error or found.code == _BESIDE) and said not in self._progress.unfinished:
                self._progress.unfinished.append(said)
        return run

    def _first(self, program: Program) -> ProgramRun:
        run, given = self._run(program, used=False), self.arguments
        if not run.is_late and run.seconds <= self._limit_s:  # it may take longer in a crowd
            return self._used(run)
        for arguments in self._smaller:
            self.arguments = arguments
            again = self._run(program, used=False)
            if not self._cannot_serve(again):
                return self._used(again)
        self.arguments = given
        if not run.is_late or not run.launches:
            return self._used(run)
        self.launches = _enough(run.launches)
        return self._run(program)

    def _cannot_serve(self, run: ProgramRun) -> str:
        """Why the original's run says nothing about a port."""
        if run.is_late:
            return f"the program did not end in {self._limit_s:g} s"
        if run.outcome.status != 0 and not run.launches:
            tail = run.outcome.output.strip().splitlines()[-1:] or [""]
            return f"the original {_ended(run)} before its first launch: {tail[0][:200]}"
        if not run.launches:
            return "the original launches no kernel"
        hang = hanging(run.outcome.findings) if self._one_kernel else None
        return f"the original itself hangs: {hang}" if hang else ""

    def _is_decided(self) -> bool:
        return self._one_kernel and hanging(self._progress.findings) is not None

    # ---- the port's runs

    def _compare_widths(self, first: ProgramRun, programs: Mapping[str, Program]) -> None:
        port = self._run(programs["port"])
        self._compare(first, port, f"{self._target.arch}, {self._target.warp} lanes")
        for order, seed in ORDERS:
            if self._is_decided():
                return
            run = self._run(programs["port"], order, seed)
            self._compare(first, run, f"{self._target.arch}, order {order}")
        if self._other is not None and not self._is_decided():
            other = programs.get("other")
            name = f"{self._other.arch}, {self._other.warp} lanes"
            if other is None:
                self._progress.unfinished.append(f"the port is not built for {name}")
            else:
                self._compare(first, self._run(other), name)

    def _compare(self, first: ProgramRun, run: ProgramRun, how: str) -> None:
        progress = self._progress
        found = errors(run.outcome.findings)
        if any(f.code == _LATE for f in found) and first.seconds > _QUICK_S:
            progress.unfinished.append(f"on {how} a launch did not end in time")
            found = tuple(f for f in found if f.code != _LATE)
        progress.findings += found
        if run.is_late:
            progress.unfinished.append(f"on {how} the program did not end in {self._limit_s:g} s")
        progress.runs.append((how, run))
        progress.compared.append(self._compared(how, first, run))
        if run.is_late:
            return
        if run.outcome.status != first.outcome.status:
            progress.notes.append(f"on {how} the port {_ended(run)}, the original {_ended(first)}")
        elif difference := text_output.difference(first.outcome.output, run.outcome.output):
            progress.notes.append(f"on {how} {difference}")

    def _execute(
        self, first: ProgramRun, program: Program | ProgramNotBuilt, target: Target
    ) -> None:
        """The port as it is compiled. What cannot be built or executed so says nothing."""
        how, progress = _as_object(target), self._progress
        if isinstance(program, ProgramNotBuilt):
            progress.unexecuted.append(f"{how} is not built: {program.reason}")
            return
        run = self._run(program)
        found = errors(run.outcome.findings)
        if kept := [f for f in found if f.code == _KEPT_BACK]:
            progress.unfinished.append(f"{how} is not executed: {kept[0]}")
            return
        lacking = [f for f in found if f.code in (_UNMODELLED, _LATE)]
        progress.findings += (f for f in found if f not in lacking)
        if lacking or run.is_late:
            why = str(lacking[0]) if lacking else f"it did not end in {self._limit_s:g} s"
            progress.unexecuted.append(f"{how} is not executed: {why}")
            return
        compared = self._compared_as_compiled(how, first, run)
        reached = compared.results[: len(run.launches)]
        is_short = not found and len(run.launches) < len(first.launches)
        if is_short and all(result.judged is not Judged.DIFFERENT for result in reached):
            why = f"it {_ended(run)} after {len(run.launches)} of {len(first.launches)} launches"
            progress.unfinished.append(f"{how} is not executed: {why}")
        else:
            progress.executed.append(replace(compared, findings=found))

    # ---- on elements of a ring

    def _by_algebra(
        self, ring: Ring, built: Mapping[str, Program | ProgramNotBuilt]
    ) -> Mapping[str, Algebra]:
        """Compares each kernel's port with its original where no operation rounds, in the
        runs that were compared as numbers."""
        original, port = built["original ring"], built["port ring"]
        for whose, program in (("original", original), ("port", port)):
            if isinstance(program, ProgramNotBuilt):
                return self._unknown(f"the {whose} is not built on a ring: {program.reason}")
        assert isinstance(original, Program)
        assert isinstance(port, Program)
        first = self._run(original, ring=ring)
        if why := self._is_cut(first):
            return self._unknown(f"on a ring the original {why}")
        targets = {"port": self._target}
        if self._other is not None:
            targets["other"] = self._other
        runs = [
            self._on_ring(ring, built[f"{name} ring"], first, f"{of.arch}, {of.warp} lanes")
            for name, of in targets.items()
        ]

        def others() -> Sequence[Sequence[LaunchRecord]]:
            return [self._run(original, *order, ring=ring).launches for order in ORDERS]

        return algebra.judged(ring, first.launches, others, runs, self._types, self.recorded)

    def _on_ring(
        self, ring: Ring, program: Program | ProgramNotBuilt, first: ProgramRun, how: str
    ) -> algebra.RingRun:
        if isinstance(program, ProgramNotBuilt):
            why = f"on {how} the port is not built on a ring: {program.reason}"
            return algebra.RingRun(how, (), why)
        run = self._run(program, ring=ring)
        why = self._is_cut(run)
        if not why and run.outcome.status != first.outcome.status:
            why = f"{_ended(run)}, the original {_ended(first)}"
        numbers = dict(self._progress.runs).get(how)
        return algebra.RingRun(
            how,
            run.launches,
            f"on {how} the ring's run {why}" if why else "",
            numbers.launches if numbers is not None else (),
        )

    def _is_cut(self, run: ProgramRun) -> str:
        """Why a run has not done what it was to do."""
        if run.is_late:
            return f"did not end in {self._limit_s:g} s"
        late = any(finding.code == _LATE for finding in run.outcome.findings)
        return "has a launch that did not end in time" if late else ""

    def _unknown(self, why: str) -> Mapping[str, Algebra]:
        names = {launch.name for launch in self.recorded}
        return {name: Algebra(ByAlgebra.UNKNOWN, why) for name in names}

    def _compared_as_compiled(self, how: str, first: ProgramRun, run: ProgramRun) -> Compared:
        """The comparison with a compiled run: another compiler's functions and sums may round
        otherwise, whole numbers may not."""
        noise: dict[tuple[int, int], float] = {}
        compared = self._compared(how, first, run, by_contents=True)
        for _ in range(_ROUNDS):
            before = len(noise)
            for result in compared.results:
                if result.judged in _BY_SCHEDULE:
                    _note(noise, result)
            if len(noise) == before:
                break
            compared = self._compared(how, first, run, noise, by_contents=True)
        return compared

    def _unstable(self, first: ProgramRun, program: Program) -> Mapping[int, LaunchResult]:
        """Asked only where a result of the port needs the excuse. What the original's own order
        changes by rounding, in kernels without a race, is allowed to the port as well."""
        if not self._differs():
            return {}
        racy = {kernel_name(f.kernel) for f in self._progress.original_findings if is_race(f)}
        unstable: dict[int, LaunchResult] = {}
        for order, seed in ORDERS:
            run = self._run(program, order, seed)
            for result in compare(_reached(first, run), run.launches, self._types):
                if result.kernel not in racy and self._note_noise(result):
                    continue
                if result.judged in _BY_SCHEDULE:
                    before = unstable.get(result.number)
                    if before is None or before.judged is Judged.REORDERED:
                        unstable[result.number] = result
        noise = self._progress.noise
        if noise:
            self._progress.compared = [
                self._compared(how, first, run, noise) for how, run in self._progress.runs
            ]
        return unstable

    def _compared(
        self,
        how: str,
        first: ProgramRun,
        run: ProgramRun,
        noise: Noise | None = None,
        *,
        by_contents: bool = False,
    ) -> Compared:
        reached = _reached(first, run)
        return Compared(
            how, compare(reached, run.launches, self._types, noise, by_contents=by_contents)
        )

    def _differs(self) -> bool:
        return any(
            result.judged in _BY_SCHEDULE
            for compared in (*self._progress.compared, *self._progress.executed)
            for result in compared.results
        )

    def _note_noise(self, result: LaunchResult) -> bool:
        """Whether all that differs is rounding."""
        return _note(self._progress.noise, result)

    def _noisy(self) -> frozenset[str]:
        launches = {number for number, _ in self._progress.noise}
        results = (r for compared in self._progress.compared for r in compared.results)
        return frozenset(r.kernel for r in results if r.number in launches)

    def _sanitize(self, programs: Mapping[str, Program]) -> ProgramRun | None:
        """The port's run with sanitizers, where that comes to its end without a finding."""
        whole: ProgramRun | None = None
        checked = {"original": "original checked", "port": "port checked"}
        for name, of_checked in checked.items():
            program = programs.get(name if self._mode == "check" else of_checked)
            if program is None:
                self._progress.unfinished.append(f"no checked build of the {name}")
                continue
            run = self._run(program, record=False)
            if name == "port":
                self._progress.findings += errors(run.outcome.findings)
            else:
                self._progress.original_findings += inheritable(run.outcome.findings)
            if name == "port" and not run.is_late and not errors(run.outcome.findings):
                whole = run
            if run.is_late and name == "port":
                why = f"with sanitizers the program did not end in {self._limit_s:g} s"
                self._progress.unfinished.append(why)
        return whole

    def _went_otherwise(
        self, checked: ProgramRun, unstable: Mapping[int, LaunchResult]
    ) -> Iterator[str]:
        """Why a run with sanitizers is not of what was compared: a program may see that it is
        looked at, by a clock for one. What changes with the order of threads, or by rounding, may
        do so here, and so may what is computed from that."""
        _, plain = self._progress.runs[0]
        if plain.is_late:
            return
        if _launched(checked) != _launched(plain):
            yield "with sanitizers the port launches other kernels than without"
            return
        is_behind = False
        results = compare(plain.launches, checked.launches, self._types)
        for one, other, result in zip(plain.launches, checked.launches, results, strict=True):
            if one.before != other.before:
                yield f"with sanitizers {result.kernel} gets other inputs than without"
            if one.absent or one.failed or one.refused:
                continue
            is_unjudged = result.judged is Judged.UNJUDGED
            differs = is_unjudged or result.judged in _BY_SCHEDULE
            if not differs or _note({}, result):
                continue
            if result.number in unstable:
                is_behind = True
            elif not (is_unjudged and is_behind):
                yield f"with sanitizers {result.kernel} computes something else than without"

    def _on_more_units(self, checked: ProgramRun, programs: Mapping[str, Program]) -> Iterator[str]:
        """Why the port is not proven where a bare architecture's largest GPU has more
        multiprocessors than were assumed, and the program asks for them: memory that is enough for
        these need not be for its own. What is written there is not compared."""
        texts = (*self._subject.headers, self._subject.ported_text)
        if self._one_kernel or not any(_UNITS.search(text.text) for text in texts):
            return  # of one kernel, the host code is ours
        if (largest := machine.with_most_units(self._target)) is None:
            return
        program = programs["port" if self._mode == "check" else "port checked"]
        run = self._run(replace(program, target=largest), record=False)
        where = f"{MORE_UNITS} ({largest.multiprocessors}, as {largest} has)"
        if found := self._own(run.outcome.findings):
            yield f"{where} the port has {found[0]}"
        elif run.is_late or run.outcome.status != checked.outcome.status:
            yield f"{where} the port {_ended(run)}"

    def _own(self, findings: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
        """The port's findings that the original does not have."""
        subject = self._subject
        inheritance = Inheritance([*subject.pairs, (subject.original_text, subject.ported_text)])
        return inheritance.own(findings, _distinct(self._progress.original_findings))

    def _covered(self, programs: Mapping[str, Program]) -> Mapping[str, TextCoverage]:
        program = programs.get("port counted")
        if program is None:
            return {}
        run = self._run(program, record=False)
        covered: dict[str, TextCoverage] = {}
        found = coverage.reports(program.notes, run.counts, self._runs.compilers)
        for text in (*self._subject.headers, self._subject.ported_text):
            if text.kernels:
                counts = coverage.counted(text.path, found)
                covered |= coverage.of_kernels(text.kernels, counts)
                self._idle |= coverage.idle_instances(text.kernels, counts)
        return covered

    def _concluded(
        self, unstable: Mapping[int, LaunchResult], covered: Mapping[str, TextCoverage]
    ) -> Examination:
        progress = self._progress
        own = self._own(_distinct(progress.findings))
        return Examination(
            "",
            (),
            tuple(progress.compared),
            own,
            errors(_distinct(progress.original_findings)),
            unstable,
            self._noisy(),
            covered,
            tuple(progress.notes),
            tuple(progress.unfinished),
            tuple(progress.executed),
            tuple(progress.unexecuted),
            self._algebra,
            self._idle,
        )


def _as_object(target: Target) -> str:
    return f"the code compiled for {target.arch}"


def _note(noise: dict[tuple[int, int], float], result: LaunchResult) -> bool:
    """Whether all that differs is rounding, which then goes into ``noise``."""
    if not result.differences or any(d.rounding is None for d in result.differences):
        return False
    for difference in result.differences:
        place = result.number, difference.buffer
        noise[place] = max(noise.get(place, 0.0), difference.rounding or 0.0)
    return True


def _enough(launches: Sequence[LaunchRecord]) -> int:
    """The number of launches to check: as many as have each kernel that they have, and a part
    that sanitizers have the time for."""
    firsts = {launch.kernel: number for number, launch in reversed([*enumerate(launches, 1)])}
    return max(*firsts.values(), len(launches) // _PART)


def _launched(run: ProgramRun) -> list[tuple[object, ...]]:
    return [(one.kernel, one.grid, one.block, one.refused) for one in run.launches]


def _reached(first: ProgramRun, run: ProgramRun) -> Sequence[LaunchRecord]:
    """The launches of the original that a run came to, before its time was over."""
    return first.launches[: len(run.launches)] if run.is_late else first.launches


def _ended(run: ProgramRun) -> str:
    status = run.outcome.status
    if status is None:
        return "did not end"
    return f"exits {status}" if status >= 0 else f"dies of signal {-status}"


def _distinct(findings: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """One of each code and place."""
    kept: dict[tuple[str, str, int, str], Diagnostic] = {}
    for finding in findings:
        key = (finding.code, finding.file, finding.line, "" if finding.line else finding.kernel)
        kept.setdefault(key, finding)
    return tuple(kept.values())
