"""Which kernels of a file are built together: all of them, or, where that fails, those that the
compiler takes, each without what the others need."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from portkern.cuda_source.syntax import SourceKernel
from portkern.port.proof.case import ProofCase
from portkern.port.proof.guesses import Guess
from portkern.port.proof.outcome import KernelProof
from portkern.port.proof.runs import ProgramNotBuilt
from portkern.port.proof.slice import Slices, root_of, written
from portkern.port.proof.texts import SourceTexts
from portkern.simt.diagnostics import Diagnostic
from portkern.spec.safe_name import real_path

_PLACE = re.compile(r"([\w.+-]+):(\d+)")
_ABSENT = re.compile(r"SX013 [^<\"]*[<\"]([^>\"]+)[>\"]|error: (\S+): No such file")


@dataclass(frozen=True)
class ProofTrial:
    """One case of a kernel, in each text: the original's, the port's, the port's at the other
    width; ``choice`` says of which of its instances and shapes of launches. ``is_drawn``: its block
    is one more of those that a launch of unknown shape may have."""

    kernel: SourceKernel
    original: ProofCase
    ported: ProofCase
    other: ProofCase
    choice: int = 0
    is_drawn: bool = False

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """The parts of the launch that nothing says, in one text or the other."""
        each = {
            g.what: g for case in (self.other, self.ported, self.original) for g in case.guesses
        }
        return tuple(each.values())


Trials = Mapping[str, Sequence[ProofTrial]]


@dataclass(frozen=True)
class KernelGroup:
    """Kernels that are cases of one program, in the texts that it is built from. ``homes`` are the
    folders of whole texts by those of their slices, ``without`` headers that were left out."""

    trials: Trials
    original: SourceTexts
    ported: SourceTexts
    homes: Mapping[str, str]
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        more = len(self.trials) - 1
        return next(iter(self.trials)) + (f"_and_{more}" if more else "")

    @property
    def is_sliced(self) -> bool:
        return bool(self.homes)

    @property
    def remark(self) -> str:
        left_out = "".join(f"; without <{name}>, which is not here" for name in self.without)
        return left_out if self.is_sliced else ""

    def at_home(self, proof: KernelProof) -> KernelProof:
        """The proof with the places of the whole texts."""
        return replace(
            proof,
            path=Path(self.home(str(proof.path))),
            why=self.home(proof.why),
            findings=tuple(map(self._moved, proof.findings)),
            original_findings=tuple(map(self._moved, proof.original_findings)),
        )

    def _moved(self, finding: Diagnostic) -> Diagnostic:
        return replace(finding, file=self.home(finding.file), also=self.home(finding.also))

    def home(self, text: str) -> str:
        for place, home in self.homes.items():
            text = text.replace(place, home)
        return text


@dataclass(frozen=True)
class TrialFailure:
    """``whose``: "the original" or "the port"."""

    whose: str
    not_built: ProgramNotBuilt

    @property
    def place(self) -> tuple[str, int] | None:
        """The file's name and the line."""
        first = next(iter(self.not_built.unmodelled), None)
        if first is not None and first.line:
            return Path(first.file).name, first.line
        found = _PLACE.search(self.not_built.reason)
        return (found[1], int(found[2])) if found else None

    @property
    def absent_header(self) -> str:
        found = _ABSENT.search(self.not_built.reason)
        return (found[1] or found[2]) if found else ""


class Grouping:
    """``failure`` builds a group, and says why it cannot be."""

    def __init__(
        self,
        original: SourceTexts,
        ported: SourceTexts,
        workdir: Path,
        failure: Callable[[KernelGroup], TrialFailure | None],
    ) -> None:
        self._original, self._ported = original, ported
        self._workdir, self._failure = workdir, failure
        self._written = 0

    def of(self, trials: Trials) -> tuple[list[KernelGroup], Mapping[str, TrialFailure]]:
        """Groups that are built, and why the other kernels are in none."""
        if not trials:
            return [], {}
        whole = KernelGroup(trials, self._original, self._ported, {})
        if self._failure(whole) is None:
            return [whole], {}
        return self._sliced(dict(trials), ())

    def _sliced(
        self, kept: dict[str, Sequence[ProofTrial]], without: tuple[str, ...]
    ) -> tuple[list[KernelGroup], dict[str, TrialFailure]]:
        rejected: dict[str, TrialFailure] = {}
        while kept:
            group = self._slice(kept, without)
            failure = self._failure(group)
            if failure is None:
                return [group], rejected
            header = failure.absent_header
            if header and header not in without:
                without = (*without, header)
                continue
            accused = self._accused(failure, kept)
            if not accused and len(kept) > 1:
                return self._halves(kept, without, rejected)
            shown = replace(failure.not_built, reason=group.home(failure.not_built.reason))
            for name in accused or tuple(kept):
                rejected[name] = replace(failure, not_built=shown)
                del kept[name]
        return [], rejected

    def _halves(
        self,
        kept: Mapping[str, Sequence[ProofTrial]],
        without: tuple[str, ...],
        rejected: dict[str, TrialFailure],
    ) -> tuple[list[KernelGroup], dict[str, TrialFailure]]:
        names, groups = list(kept), list[KernelGroup]()
        middle = len(names) // 2
        for part in (names[:middle], names[middle:]):
            made, failed = self._sliced({name: kept[name] for name in part}, without)
            groups += made
            rejected |= failed
        return groups, rejected

    def _accused(self, failure: TrialFailure, kernels: Collection[str]) -> tuple[str, ...]:
        """The kernels that use what the compiler stumbles over."""
        place = failure.place
        is_original = failure.whose == "the original"
        texts = self._original if is_original else self._ported
        names = [file.path.name for file in texts.files]
        if place is None or place[0] not in names:
            return ()
        slices = self._slices[0 if is_original else 1]
        return tuple(sorted(slices.users(names.index(place[0]), place[1], kernels)))

    @cached_property
    def _slices(self) -> tuple[Slices, Slices]:
        original, ported = (
            Slices([file.text for file in texts.files]) for texts in (self._original, self._ported)
        )
        return original, ported

    def _slice(
        self, kept: Mapping[str, Sequence[ProofTrial]], without: tuple[str, ...]
    ) -> KernelGroup:
        self._written += 1
        place = self._workdir / "slices" / str(self._written)
        both: list[SourceTexts] = []
        homes: dict[str, str] = {}
        for role, texts, slices in zip(
            ("original", "port"), (self._original, self._ported), self._slices, strict=True
        ):
            home = real_path(texts.source.path.parent)
            folder = place / role
            path = written(texts, slices.of(kept, without), folder)
            source = replace(texts.source, path=path, include=(*texts.source.include, home))
            both.append(SourceTexts(source))
            homes[str(folder)] = str(root_of(texts))
        return KernelGroup(dict(kept), both[0], both[1], homes, without)
