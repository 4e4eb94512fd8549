"""Kernels without a program: each gets a case, and a program of one file around it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from portkern.cuda_source.syntax import SourceKernel
from portkern.errors import ConfigError
from portkern.port.hazard import Hazard
from portkern.port.proof import harness
from portkern.port.proof.case import Buffer, ProofCase, shape_text, to_yaml
from portkern.port.proof.chosen import Chosen, number_of
from portkern.port.proof.conclusion import conclude, outcome_of
from portkern.port.proof.element import bound_type, plain_type
from portkern.port.proof.examine import Examiner, Subject
from portkern.port.proof.findings import errors, hanging
from portkern.port.proof.grouping import Grouping, KernelGroup, ProofTrial, TrialFailure
from portkern.port.proof.guesses import BLOCK, THREADS, Guess, of_variables, settled
from portkern.port.proof.infer import Refused, propose, scales, templates
from portkern.port.proof.outcome import (
    NO_CASE,
    WROTE_NOTHING,
    KernelProof,
    Outcome,
    ProofLimits,
    ProofSource,
)
from portkern.port.proof.programs import command_of
from portkern.port.proof.recording import Size
from portkern.port.proof.runs import Program, ProgramNotBuilt, Runs, Wanted
from portkern.port.proof.slice import Slices
from portkern.port.proof.texts import SourceTexts
from portkern.spec.target import Target

#: A case that an original of any quality can be run on is the first of these without a finding.
_LOCAL_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"', re.MULTILINE)


#: So many instances, and shapes of launches, are looked at.
_MOST_INSTANCES = 8
_UNKNOWN_INSTANCE = "which instance is launched is not known"
_Sources = tuple[ProofSource, ProofSource, ProofSource]


class KernelProver:
    def __init__(
        self,
        original: ProofSource,
        ported: ProofSource,
        *,
        vendor: Target,
        target: Target,
        other: Target | None,
        hazards: Sequence[Hazard],
        cases: Mapping[str, ProofCase],
        workdir: Path,
        runs: Runs,
        limits: ProofLimits,
        only: Mapping[str, Collection[tuple[str, ...]]],
    ) -> None:
        """Prove of the kernels in ``only`` the instances with these arguments alone."""
        self._only = only
        self._original, self._ported = SourceTexts(original), SourceTexts(ported)
        self._vendor, self._target, self._other = vendor, target, other
        self._hazards, self._cases = hazards, cases
        self._workdir, self._runs, self._limits = workdir, runs, limits
        self._known = {**self._ported.aliases, **self._original.aliases}
        self._filled = {**self._original.rows, **self._ported.rows, **self._known}
        self._guesses: dict[str, dict[Guess, None]] = {}
        self._choices = cache(self._found_choices)

    def prove(self, kernels: Sequence[SourceKernel]) -> tuple[KernelProof, ...]:
        """Proves all kernels in one program, or in a few, with what they need alone, where some
        cannot be built: the first instance of each template, then all others that are launched,
        in one more. Of instances that are guessed the first that compiles counts."""
        proofs: dict[str, KernelProof] = {}
        left = {kernel: [0] for kernel in kernels}
        while left:
            made, rejected = self._proven(left)
            proofs |= {name: self._unbuilt(name, proofs, rejected[name]) for name in rejected}
            proofs |= made
            left = {
                kernel: further
                for kernel, choices in left.items()
                if (further := self._further(kernel, choices, proofs[kernel.name], rejected))
            }
        return tuple(self._of_launched(k, proofs[k.name]) for k in kernels)

    def _unbuilt(
        self, name: str, before: Mapping[str, KernelProof], proof: KernelProof
    ) -> KernelProof:
        """A kernel's proof whose case is not built; of guesses an earlier one counts."""
        if name not in before or before[name].outcome is Outcome.PROVEN:
            return proof
        return before[name]

    def _further(
        self,
        kernel: SourceKernel,
        choices: Sequence[int],
        proof: KernelProof,
        rejected: Collection[str],
    ) -> list[int]:
        """The instances to look at next."""
        chosen = self._instances(kernel)
        after = [*range(choices[-1] + 1, min(len(self._choices(kernel)), _MOST_INSTANCES))]
        if chosen and chosen[0].is_guess:
            return after[:1] if kernel.name in rejected else []
        return after if proof.outcome is Outcome.PROVEN else []

    def _of_launched(self, kernel: SourceKernel, proof: KernelProof) -> KernelProof:
        """The proof as it holds for the kernel's launches: unproven where instances that are
        launched were not looked at, or something of a launch is not known."""
        chosen, guesses = self._instances(kernel), [*self._guesses.get(kernel.name, ())]
        if kernel.template and any(one.is_guess for one in chosen):
            guesses.insert(0, Guess(_UNKNOWN_INSTANCE, proof.inputs))
        elif proof.outcome is Outcome.PROVEN and len(chosen) > _MOST_INSTANCES:
            why = f"{len(chosen)} instances are launched, of which {_MOST_INSTANCES} were looked at"
            return replace(proof, outcome=Outcome.UNPROVEN, why=why)
        return settled(proof, guesses)

    def _proven(
        self, kernels: Mapping[SourceKernel, Sequence[int]]
    ) -> tuple[dict[str, KernelProof], dict[str, KernelProof]]:
        """The proofs with the instances of those numbers of each template, of several the first
        that is not proven, or the last: those that are known, and those of kernels whose cases do
        not compile."""
        proofs: dict[str, KernelProof] = {}
        trials: dict[str, list[ProofTrial]] = {}
        for kernel, choices in kernels.items():
            proposed = [self._trials(kernel, choice) for choice in choices]
            refused = next((one for one in proposed if isinstance(one, Refused)), None)
            if refused is not None:
                proofs[kernel.name] = self._refused(kernel, refused)
            else:
                each = [one for one in proposed if not isinstance(one, Refused)]
                trials[kernel.name] = [trial for one in each for trial in one]
        grouping = Grouping(self._original, self._ported, self._workdir, self._failure)
        groups, failures = grouping.of(trials)
        for group in groups:
            for proof in self._prove_group(group):
                proofs[proof.kernel] = proof
        rejected = {
            name: self._rejected(trials[name][0], failure) for name, failure in failures.items()
        }
        return proofs, rejected

    # ---- cases

    def _instances(self, kernel: SourceKernel) -> list[Chosen]:
        """The instances and launches that there are to look at; none where a case says which."""
        return [one for _, one in self._numbered(kernel)]

    def _numbered(self, kernel: SourceKernel) -> list[tuple[int, Chosen]]:
        """The same, each with the number by which :func:`propose` is asked for it."""
        found = next((k for k in self._original.kernels if k.name == kernel.name), None)
        if found is None or kernel.name in self._cases:
            return []
        chosen = templates(found, self._original)
        if isinstance(chosen, Refused):
            return []
        only = self._only.get(kernel.name)
        numbered = ((n, chosen[number_of(n, len(chosen))]) for n in range(len(chosen)))
        return [(n, one) for n, one in numbered if only is None or one.template in only]

    def _found_choices(self, kernel: SourceKernel) -> list[tuple[int, int]]:
        """The things to look at: instances and launches by number, each with the threads that a
        block has if nothing says how many; where that is so, it is looked at with several."""
        found, chosen = list[tuple[int, int]](), self._numbered(kernel)
        for number, _ in chosen[:_MOST_INSTANCES]:
            trials = [] if chosen[0][1].is_guess else self._proposed(kernel, number, THREADS[0])
            guesses = trials[0].guesses if isinstance(trials, list) and trials else ()
            is_open = any(guess.what == BLOCK for guess in guesses)
            found += [(number, threads) for threads in (THREADS if is_open else THREADS[:1])]
        return found

    def _trials(self, kernel: SourceKernel, choice: int) -> list[ProofTrial] | Refused:
        number, threads = [*self._choices(kernel), (choice, THREADS[0])][choice]
        trials = self._proposed(kernel, number, threads)
        if isinstance(trials, Refused):
            return trials
        return [replace(trial, choice=choice, is_drawn=threads != THREADS[0]) for trial in trials]

    def _proposed(
        self, kernel: SourceKernel, number: int, threads: int
    ) -> list[ProofTrial] | Refused:
        """The cases of an instance: those of which least is a guess, for there may be sizes with
        which the launch's shape can be computed."""
        original = next((k for k in self._original.kernels if k.name == kernel.name), None)
        ported = next((k for k in self._ported.kernels if k.name == kernel.name), None)
        if original is None or ported is None:
            return Refused(f"the {'port' if original else 'original'} has no kernel of this name")
        if kernel.name in self._cases:
            return self._given(original, ported, self._cases[kernel.name])
        trials = []
        widths = self._target.warp or 64, (self._other or self._target).warp or 32
        for scale in scales(original, self._original):
            cases = [
                propose(kernel, texts, scale, warp=warp, choice=number, threads=threads)
                for kernel, texts, warp in (
                    (original, self._original, self._vendor.warp or 32),
                    (ported, self._ported, widths[0]),
                    (ported, self._ported, widths[1]),
                )
            ]
            refused = next((case for case in cases if isinstance(case, Refused)), None)
            if refused is not None:
                return refused
            own, port, other = (case for case in cases if isinstance(case, ProofCase))
            trials.append(ProofTrial(ported, own, port, other))
        least = min(len(trial.guesses) for trial in trials)
        return [trial for trial in trials if len(trial.guesses) == least]

    def _given(
        self, original: SourceKernel, ported: SourceKernel, case: ProofCase
    ) -> list[ProofTrial] | Refused:
        try:
            own = case.with_types(_types(original, case))
            other = case.with_types(_types(ported, case))
        except ConfigError as error:
            return Refused(str(error))
        return [ProofTrial(ported, own, other, other)]

    def _refused(self, kernel: SourceKernel, refused: Refused) -> KernelProof:
        outcome = Outcome.NEEDS_HARDWARE if refused.hardware else Outcome.UNPROVEN
        return KernelProof(
            kernel.name, self._ported.source.path, kernel.line, outcome, refused.reason
        )

    def _rejected(self, trial: ProofTrial, failure: TrialFailure) -> KernelProof:
        whose, reason = failure.whose, failure.not_built
        return KernelProof(
            trial.kernel.name,
            self._ported.source.path,
            trial.kernel.line,
            outcome_of(reason.unmodelled) if reason.unmodelled else Outcome.UNPROVEN,
            f"{whose}'s {NO_CASE}: {reason.reason}",
            str(trial.original),
        )

    # ---- programs

    def _sources(self, group: KernelGroup) -> _Sources:
        """The original's, the port's and that for the other width; which case is which is their
        order in the group."""
        trials = [trial for of_kernel in group.trials.values() for trial in of_kernel]
        return (
            self._written(group, group.original, [t.original for t in trials], "original"),
            self._written(group, group.ported, [t.ported for t in trials], "port"),
            self._written(group, group.ported, [t.other for t in trials], "other"),
        )

    def _written(
        self, group: KernelGroup, file: SourceTexts, cases: Sequence[ProofCase], role: str
    ) -> ProofSource:
        name = f"case_{group.name}{harness.suffix(file.source.language)}"
        path = self._workdir / "cases" / role / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = harness.render(
            cases,
            _openmp(file) + f'#include "{file.source.path.name}"',
            file.source.language,
            known=self._filled,
            scopes=_scopes(file),
            title=f"Kernels of {file.source.path.name}",
            command="",
        )
        path.write_text(text, encoding="utf-8")
        include = (file.source.path.parent.absolute(), *file.source.include)
        return replace(file.source, path=path, include=include)

    def _failure(self, group: KernelGroup) -> TrialFailure | None:
        """Why it cannot be built for the executor."""
        original, ported, _ = self._sources(group)
        wanted = [
            Wanted(original, self._vendor, "check", "original"),
            Wanted(ported, self._target, "check", "port"),
        ]
        built = zip(("the original", "the port"), self._runs.build_all(wanted), strict=True)
        failed = (
            TrialFailure(who, made) for who, made in built if isinstance(made, ProgramNotBuilt)
        )
        return next(failed, None)

    def _prove_group(self, group: KernelGroup) -> list[KernelProof]:
        sources = self._sources(group)
        first = 0
        proofs = []
        for trials in group.trials.values():
            proofs.append(group.at_home(self._prove_instances(group, trials, sources, first)))
            first += len(trials)
        return proofs

    def _prove_instances(
        self, group: KernelGroup, trials: Sequence[ProofTrial], sources: _Sources, first: int
    ) -> KernelProof:
        """The proof of the first instance that is not proven, or of the last."""
        of_instances = [
            list(own) for _, own in itertools.groupby(trials, lambda trial: trial.choice)
        ]
        for own in of_instances:
            proof = self._prove_kernel(group, own, sources, first)
            if proof.outcome is not Outcome.PROVEN:
                break
            first += len(own)
        return proof

    def _prove_kernel(
        self, group: KernelGroup, trials: Sequence[ProofTrial], sources: _Sources, first: int
    ) -> KernelProof:
        chosen, remark = self._choose(trials, sources[0], first)
        proof = self._examined(group, trials[chosen], sources, first + chosen, remark)
        if proof.why == WROTE_NOTHING:
            writing = self._writing(trials, sources[0], first)
            if writing is not None:
                remark = "; nothing was written with the values tried first"
                again = self._examined(group, trials[writing], sources, first + writing, remark)
                if again.outcome is not Outcome.UNPROVEN:
                    chosen, proof = writing, again
        trial = trials[chosen]
        self._guesses.setdefault(proof.kernel, {}).update(
            dict.fromkeys((*trial.guesses, *self._of_variables(proof.kernel)))
        )
        if trial.is_drawn and proof.outcome is Outcome.WRONG:
            why = f"{BLOCK}: with {shape_text(trial.original.block)} threads {proof.why}"
            proof = replace(proof, outcome=Outcome.UNPROVEN, why=why)
        return self._saved(group, proof, trial)

    def _of_variables(self, kernel: str) -> Iterator[Guess]:
        if kernel in self._cases or "ToSymbol" not in self._original.whole:
            return iter(())
        slices = Slices([file.text for file in self._original.files])
        return of_variables(slices.reached([kernel]), self._original.whole)

    def _examined(
        self, group: KernelGroup, trial: ProofTrial, sources: _Sources, number: int, remark: str
    ) -> KernelProof:
        """``number`` is the case's in the program."""
        kernel = trial.kernel
        both = (group.original, group.ported)
        texts = [file.file_of(kernel.name) or file.own for file in both]
        pairs = group.original.paired(group.ported)
        records = {**group.ported.records, **group.original.records}
        subject = Subject(*sources, texts[0], texts[1], self._known, pairs=pairs, records=records)
        examination = Examiner(
            self._runs,
            subject,
            vendor=self._vendor,
            target=self._target,
            other=self._other,
            mode="check",
            limit_s=self._limits.run_s,
            arguments=[str(number)],
            one_kernel=True,
            ring=self._limits.ring,
            objects=self._limits.objects,
        ).examine()
        inputs = f"{trial.original}{remark}{group.remark}"
        proof = conclude(kernel, examination, subject, self._hazards, inputs)
        return proof if kernel.name in self._cases else _of_made_up(proof)

    def _choose(
        self, trials: Sequence[ProofTrial], original: ProofSource, first: int
    ) -> tuple[int, str]:
        """The first that the original does without a finding; else the one with the fewest. Where
        it hangs, it does so again with as many threads."""
        program = self._runs.build_all([Wanted(original, self._vendor, "check", "original")])[0]
        assert isinstance(program, Program)  # groups are what can be built
        best, fewest, remark = 0, 1 << 30, ""
        hung: set[tuple[Size, Size]] = set()
        for number, trial in enumerate(trials):
            shape = trial.original.grid, trial.original.block
            if shape in hung:
                continue
            run = self._runs.run(program, arguments=[str(first + number)], record=False)
            found = errors(run.outcome.findings)
            if run.outcome.status == 0 and not found:
                return number, remark
            if not remark and found:
                remark = f"; not on the sizes tried first: {found[0]}"
            if hanging(found):
                hung.add(shape)
            problems = len(found) + (100 if run.outcome.status else 0)
            if problems < fewest:
                best, fewest = number, problems
        return best, ""

    def _writing(
        self, trials: Sequence[ProofTrial], original: ProofSource, first: int
    ) -> int | None:
        """The first that the original does without a finding, and that changes a buffer."""
        program = self._runs.build_all([Wanted(original, self._vendor, "check", "original")])[0]
        assert isinstance(program, Program)
        for number in range(len(trials)):
            arguments = [str(first + number)]
            checked = self._runs.run(program, arguments=arguments, record=False).outcome
            if checked.status == 0 and not errors(checked.findings):
                run = self._runs.run(program, arguments=arguments)
                if any(launch.after for launch in run.launches):
                    return number
        return None

    # ---- what is left for the user

    def _saved(self, group: KernelGroup, proof: KernelProof, trial: ProofTrial) -> KernelProof:
        proposal = self._workdir / f"{proof.kernel}.yaml"
        if proof.kernel not in self._cases:
            proposal.write_text(to_yaml(trial.original), encoding="utf-8")
        case = self._one_file(group, trial, f"{proof.kernel}: {proof.why}")
        command = command_of(case, self._target)
        is_wrong = proof.outcome is Outcome.WRONG
        return replace(proof, command=command, counterexample=case.path if is_wrong else None)

    def _one_file(self, group: KernelGroup, trial: ProofTrial, title: str) -> ProofSource:
        """The port's case with the port's text in it, unless that has includes beside it."""
        file = group.ported
        path = self._workdir / f"case_{trial.kernel.name}{harness.suffix(file.source.language)}"
        text = harness.render(
            [trial.ported],
            _text_of(file, inline=group.is_sliced),
            file.source.language,
            known=self._filled,
            scopes=_scopes(file),
            title=" ".join(title.split()),
            command=f"portkern run {path.name} target={self._target} sanitize=all",
        )
        path.write_text(text, encoding="utf-8")
        home = self._ported.source
        return replace(home, path=path, include=(*home.include, home.path.parent.absolute()))


def _of_made_up(proof: KernelProof) -> KernelProof:
    """Inputs that nobody meant, on which the original itself goes wrong, prove nothing and accuse
    nobody."""
    if not proof.original_findings or proof.outcome not in (Outcome.PROVEN, Outcome.WRONG):
        return proof
    why = (
        f"no meaningful inputs found: on those tried the original has {proof.original_findings[0]}"
    )
    return replace(proof, outcome=Outcome.UNPROVEN, why=why)


def _openmp(file: SourceTexts) -> str:
    """A program is linked with OpenMP where its first file asks for it."""
    return "#include <omp.h>\n" if "<omp.h>" in file.whole else ""


def _text_of(file: SourceTexts, *, inline: bool) -> str:
    if not inline and _LOCAL_INCLUDE.search(file.own.text):
        return _openmp(file) + f'#include "{file.source.path.name}"'
    return f'#line 1 "{file.source.path.name}"\n{file.own.text}'


def _types(kernel: SourceKernel, case: ProofCase) -> list[str]:
    """The type that each parameter is or points to, with the case's arguments of the template."""
    bound = dict(zip((p.name for p in kernel.template), case.template, strict=False))
    types = []
    for parameter, argument in zip(kernel.parameters, case.arguments, strict=False):
        spelled = plain_type(parameter.type)
        name = spelled.rstrip("*&[]") if isinstance(argument, Buffer) else spelled.rstrip("&")
        types.append(bound_type(name, bound))
    return types + [""] * (len(kernel.parameters) - len(types))


def _scopes(file: SourceTexts) -> Mapping[str, str]:
    return {k.name: text.scope_of(k) for text in file.files for k in text.kernels}
