"""Instances of a program's kernels that the program has and its own run did not launch: each is
proven in a case of its own, or the kernel is not proven."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from portkern.port.proof.case import ProofCase
from portkern.port.proof.chosen import templates
from portkern.port.proof.commas import of_template
from portkern.port.proof.element import element_of
from portkern.port.proof.outcome import KernelProof, Outcome, Refused
from portkern.port.proof.texts import SourceTexts

#: So many instances are named.
_MOST_NAMES = 4
_WORDS = {"true": "1", "false": "0"}
#: ``64u``, ``8ul``
_SUFFIX = re.compile(r"\b(\d+)[uUlL]+\b")


@dataclass(frozen=True)
class IdleInstances:
    """``names`` are the instances, ``chosen`` the arguments of templates that are theirs in the
    text; none where the text does not show one of them."""

    names: tuple[str, ...]
    chosen: frozenset[tuple[str, ...]]

    def joined(self, of_program: KernelProof, of_cases: KernelProof | None) -> KernelProof:
        """The program's proof with that of these instances; None where they have none."""
        if of_cases is None:
            why = f"{self._which()}: no case can be made of what the text shows of its launch"
            return replace(of_program, outcome=Outcome.UNPROVEN, why=why)
        inputs = f"{of_program.inputs}; {of_cases.inputs}"
        if of_cases.outcome is Outcome.PROVEN:
            return replace(of_program, inputs=inputs)
        why = f"{self._which(of_cases.inputs)}: {of_cases.why}"
        if of_cases.outcome is Outcome.WRONG:
            return replace(of_cases, why=why, inputs=inputs)
        return replace(of_program, outcome=Outcome.UNPROVEN, why=why, inputs=inputs)

    def _which(self, inputs: str = "") -> str:
        """The instance that a case's inputs are of, or else all of them."""
        one = inputs.partition(": ")[0]
        return f"{named([one] if one else self.names)}, which the program's run does not launch"


def named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    text = ", ".join([*names[:_MOST_NAMES], *([f"{more} more"] * (more > 0))])
    return f"instance{'s' * (len(names) > 1)} {text}"


def of_program(
    proofs: Iterable[KernelProof], texts: SourceTexts, cases: Mapping[str, ProofCase]
) -> Mapping[str, IdleInstances]:
    """The instances that a program's proofs leave open, by the kernels' names."""
    proven = (proof for proof in proofs if proof.outcome is Outcome.PROVEN)
    found = {proof.kernel: _of_kernel(proof, texts, cases.get(proof.kernel)) for proof in proven}
    return {name: idle for name, idle in found.items() if idle is not None}


def joined(
    left: Mapping[str, IdleInstances], proof: KernelProof, by_case: Mapping[str, KernelProof]
) -> KernelProof:
    """The proof with that of the kernel's instances that the program's run does not launch."""
    idle = left.get(proof.kernel)
    if idle is None or proof.outcome is not Outcome.PROVEN:
        return proof
    return idle.joined(proof, by_case[proof.kernel] if idle.chosen else None)


def _of_kernel(
    proof: KernelProof, texts: SourceTexts, case: ProofCase | None
) -> IdleInstances | None:
    """The open instances of one kernel. ``case`` is what the user says how to launch, which no
    other case is made beside. Where it is not known which ones ran, all are open that the text
    launches, unless there is one."""
    kernel = next((k for k in texts.kernels if k.name == proof.kernel), None)
    found = templates(kernel, texts) if kernel is not None else []
    shown = [] if isinstance(found, Refused) else [one.template for one in found]
    idle = proof.idle
    if idle is None:
        every = dict.fromkeys(", ".join(arguments) for arguments in shown)
        idle = tuple(every) if len(every) > 1 else ()
    known = texts.aliases
    if case is not None:
        idle = tuple(one for one in idle if not _is(case.template, one, known))
    if not idle:
        return None
    names = tuple(f"{proof.kernel}<{one}>" for one in idle)
    of_each = [{arguments for arguments in shown if _is(arguments, one, known)} for one in idle]
    is_shown = case is None and all(of_each)
    return IdleInstances(names, frozenset[tuple[str, ...]]().union(*of_each if is_shown else ()))


def _is(arguments: tuple[str, ...], spelled: str, known: Mapping[str, str]) -> bool:
    """Whether arguments of a template are those that a compiler spells so."""
    theirs = of_template(spelled)
    return len(arguments) == len(theirs) and all(
        _plain(ours, known) == _plain(other, {})
        for ours, other in zip(arguments, theirs, strict=True)
    )


def _plain(argument: str, known: Mapping[str, str]) -> str:
    """An argument as it is the same however it is spelled: types of numbers by what they hold."""
    if argument != "bool" and (element := element_of(argument, known)) is not None:
        return f"{element[0].name}[{element[1]}]"
    text = re.sub(r"\b(?:true|false)\b", lambda word: _WORDS[word[0]], argument)
    return re.sub(r"\s+", "", _SUFFIX.sub(r"\1", text))
