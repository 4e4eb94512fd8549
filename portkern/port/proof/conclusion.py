"""The conclusion that an examination allows for each kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from portkern.cuda_source.syntax import SourceKernel
from portkern.port.hazard import Hazard
from portkern.port.proof.compare import Judged, LaunchResult
from portkern.port.proof.examine import Examination, Subject
from portkern.port.proof.findings import Text, hanging, is_race, says_nothing
from portkern.port.proof.outcome import (
    NOT_LAUNCHED,
    ORIGINAL_FAILED,
    WROTE_NOTHING,
    ByAlgebra,
    KernelProof,
    Outcome,
    TextCoverage,
)
from portkern.simt.diagnostics import HANGS, Diagnostic, Severity

#: A missing header or an undefined function does not mean that a model is lacking.
_NOT_OF_HARDWARE = frozenset(["SX013", "SX014", "SX008", "SX011"])
#: Reads of memory that nobody wrote.
_UNWRITTEN = frozenset(["SX107", "SX108"])
#: Calls of the host that a device refuses: what they were to bring to a kernel has not come.
_REFUSED_CALLS = frozenset(["SX101", "SX105", "SX112", "SX118"])
#: The part of branches below which a proof says what its inputs reached; any line left is said.
ENOUGH = 0.8


def conclude(
    kernel: SourceKernel,
    examination: Examination,
    subject: Subject,
    hazards: Sequence[Hazard],
    inputs: str,
) -> KernelProof:
    """The proof that an examination of a kernel amounts to, without a command and a
    counter-example."""
    ported, original = subject.ported_text, subject.original_text
    path = ported.path

    def proof(outcome: Outcome, why: str) -> KernelProof:
        return KernelProof(
            kernel.name,
            path,
            kernel.line,
            outcome,
            why,
            inputs,
            examination.coverage.get(kernel.name),
            _of(kernel, examination.findings, ported),
            _of(kernel, examination.original_findings, original),
            algebra=by_algebra,
        )

    by_algebra = examination.algebra.get(kernel.name)
    if examination.problem:
        return proof(outcome_of(examination.unmodelled), examination.problem)
    results = [
        (compared.how, result)
        for compared in examination.compared
        for result in compared.results
        if result.kernel == kernel.name
    ]
    inherited = _of(kernel, examination.original_findings, original)
    if results and all(result.why == ORIGINAL_FAILED for _, result in results):
        cause = f": {inherited[0]}" if inherited else ""
        return proof(Outcome.UNPROVEN, f"{ORIGINAL_FAILED}{cause}")
    if own := _of(kernel, examination.findings, ported):
        first = hanging(own) or min(own, key=lambda finding: not finding.line)
        why = f"hangs: {first}" if first.code in HANGS else str(first)
        return proof(Outcome.WRONG, "; ".join([why, *_in_code(kernel, examination, subject)]))
    doubt = ""
    for how, result in results:
        outcome, why = _of_result(result, examination, original)
        if outcome is Outcome.WRONG:
            said = f"launch {result.number}: {why}"
            compiled = _in_code(kernel, examination, subject, said)
            return proof(outcome, "; ".join([f"on {how}, {said}", *compiled]))
        if outcome is Outcome.UNPROVEN:
            doubt = doubt or f"on {how}, launch {result.number}: {why}"
    executed = [
        (compared.how, result)
        for compared in examination.executed
        for result in compared.results
        if result.kernel == kernel.name
    ]
    for how, result in executed if not doubt else ():
        outcome, why = _of_result(result, examination, original)
        if outcome is Outcome.WRONG and (unwritten := _unwritten(inherited)):
            doubt = unwritten
        elif outcome is Outcome.WRONG:
            return proof(outcome, f"in {how}, launch {result.number}: {why}")
    if errors := _errors(kernel, hazards):
        codes = ", ".join(dict.fromkeys(hazard.code for hazard in errors))
        return proof(Outcome.NEEDS_HUMAN, f"{codes}: {errors[0].message}")
    doubt = doubt or _doubt(examination, results, ported) or _without_inputs(examination, original)
    doubt = doubt or _open(inherited)
    if by_algebra is not None and by_algebra.verdict is ByAlgebra.DIFFERENT:
        doubt = doubt or str(by_algebra)
    if doubt:
        return proof(Outcome.UNPROVEN, doubt)
    return proof(Outcome.PROVEN, "; ".join(_remarks(kernel, examination, results, original)))


def _open(inherited: Sequence[Diagnostic]) -> str:
    found = next((f for f in inherited if says_nothing(f.code)), None)
    if found is None:
        return ""
    return f"the original has {found.code} at {place(found)}: {says_nothing(found.code)}"


def _unwritten(inherited: Sequence[Diagnostic]) -> str:
    """Why two runs may differ without a fault of the port's: the original reads what nobody
    wrote."""
    found = next((finding for finding in inherited if finding.code in _UNWRITTEN), None)
    if found is None:
        return ""
    return f"the original has {found.code} at {place(found)}: what it finds there is any value"


def outcome_of(unmodelled: Sequence[Diagnostic]) -> Outcome:
    """The outcome for a kernel whose code could not be built in the emulator, by the findings
    that say why."""
    lacking = any(finding.code not in _NOT_OF_HARDWARE for finding in unmodelled)
    return Outcome.NEEDS_HARDWARE if lacking else Outcome.UNPROVEN


def _of(kernel: SourceKernel, findings: Sequence[Diagnostic], text: Text) -> tuple[Diagnostic, ...]:
    return tuple(finding for finding in findings if text.kernel_of(finding) == kernel.name)


def _errors(kernel: SourceKernel, hazards: Sequence[Hazard]) -> list[Hazard]:
    """The errors among the hazards that name the kernel or lie on its lines."""
    return [
        hazard
        for hazard in hazards
        if hazard.severity is Severity.ERROR
        and (hazard.kernel == kernel.name or kernel.line <= hazard.line <= kernel.last_line)
    ]


def _of_result(
    result: LaunchResult, examination: Examination, original: Text
) -> tuple[Outcome, str]:
    if result.judged in (Judged.EQUAL, Judged.ROUNDED):
        return Outcome.PROVEN, ""
    if result.judged is Judged.UNJUDGED:
        return Outcome.UNPROVEN, result.why
    unstable = examination.unstable.get(result.number)
    if unstable is None:
        return Outcome.WRONG, result.why
    if result.judged is Judged.REORDERED:
        return Outcome.PROVEN, ""
    if unstable.judged is Judged.DIFFERENT:
        races = (f for f in examination.original_findings if is_race(f))
        race = next((f for f in races if original.kernel_of(f) == result.kernel), None)
        where = f": {race.code} at {place(race)}" if race else ""
        why = f"the original's own result depends on the order of its threads{where}"
        return Outcome.UNPROVEN, why
    return Outcome.WRONG, result.why


def _doubt(
    examination: Examination, results: Sequence[tuple[str, LaunchResult]], ported: Text
) -> str:
    if examination.unfinished:
        return examination.unfinished[0]
    runs = {how for how, _ in results}
    missing = [compared.how for compared in examination.compared if compared.how not in runs]
    if not results or missing:
        return NOT_LAUNCHED + (f" on {missing[0]}" if runs else "")
    if not any(result.written for _, result in results):
        return WROTE_NOTHING
    host = [finding for finding in examination.findings if not ported.kernel_of(finding)]
    if host:
        return f"the port's host code: {host[0]}"
    exits = [note for note in examination.notes if "the original exits" in note]
    return exits[0] if exits else ""


def _without_inputs(examination: Examination, original: Text) -> str:
    """Why the launches of the original's program are not what it means to launch."""
    for finding in examination.original_findings:
        if finding.code in _REFUSED_CALLS and not original.kernel_of(finding):
            return f"the original's host code goes wrong: {finding}"
    return ""


def _remarks(
    kernel: SourceKernel,
    examination: Examination,
    results: Sequence[tuple[str, LaunchResult]],
    original: Text,
) -> list[str]:
    remarks = (
        [] if kernel.name not in examination.algebra else [str(examination.algebra[kernel.name])]
    )
    coverage: TextCoverage | None = examination.coverage.get(kernel.name)
    if coverage is not None and (coverage.part < ENOUGH or coverage.lines < coverage.lines_total):
        remarks.append(f"its inputs reached {coverage}")
    if any(result.judged is Judged.REORDERED for _, result in results):
        remarks.append("its results come in any order, as the original's do")
    if kernel.name in examination.noisy:
        remarks.append("as near to the original's results as these are in other orders of threads")
    remarks += _as_compiled(kernel, examination, original)
    inherited = _of(kernel, examination.original_findings, original)
    if inherited:
        remarks.append(f"the original has {inherited[0].code} at {place(inherited[0])}")
    return remarks + [note for note in examination.notes if "printed" in note][:1]


def _in_code(
    kernel: SourceKernel, examination: Examination, subject: Subject, said: str = ""
) -> Iterator[str]:
    """Yields, of a kernel whose port is wrong, what each code compiled of it does beside what is
    ``said``, or why one was not run."""
    ported, original = subject.ported_text, subject.original_text
    for compared in examination.executed:
        found = _of(kernel, compared.findings, ported)
        results = [result for result in compared.results if result.kernel == kernel.name]
        verdicts = [(one.number, *_of_result(one, examination, original)) for one in results]
        wrong = [f"launch {number}: {why}" for number, end, why in verdicts if end is Outcome.WRONG]
        if hang := hanging(found):
            yield f"{compared.how} hangs at {place(hang)}"
        elif found:
            yield f"{compared.how} has {found[0].code} at {place(found[0])}"
        elif wrong:
            yield (
                f"{compared.how} does so too" if wrong[0] == said else f"{compared.how}, {wrong[0]}"
            )
        elif results and all(outcome is Outcome.PROVEN for _, outcome, _ in verdicts):
            yield f"{compared.how} does what the original does"
    yield from examination.unexecuted


def _as_compiled(kernel: SourceKernel, examination: Examination, original: Text) -> list[str]:
    """A remark on the executed code: that it does the same, or why it was not run."""
    same = [
        compared.how
        for compared in examination.executed
        if any(result.kernel == kernel.name for result in compared.results)
        and all(
            _of_result(result, examination, original)[0] is Outcome.PROVEN
            for result in compared.results
            if result.kernel == kernel.name
        )
    ]
    return [f"{' and '.join(same)} does the same"] if same else [*examination.unexecuted[:1]]


def place(finding: Diagnostic) -> str:
    return f"{Path(finding.file).name}:{finding.line}"
