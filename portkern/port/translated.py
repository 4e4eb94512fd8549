"""The files of a library, translated and looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from portkern.cuda_source import syntax
from portkern.cuda_source.syntax import SourceKernel
from portkern.cuda_source.tree import TooLong
from portkern.port import tree
from portkern.port.hazard import Hazard
from portkern.port.kernel_port import HazardLine
from portkern.port.library import Library, SourceFile
from portkern.port.lint import lint
from portkern.port.proof.findings import line_map
from portkern.port.proof.slice import Slices
from portkern.port.request import PortRequest
from portkern.port.result import FileResult
from portkern.port.surroundings import Surroundings
from portkern.port.translate import Translation, single_source, translate
from portkern.port.tree import PortedFile
from portkern.spec.safe_name import real_path


@dataclass(frozen=True)
class TranslatedFile:
    """``seen`` are the hazards of the translation, by target: what is left to be looked at.
    ``headers`` are the texts that the lint knows the names and constants of."""

    source: SourceFile
    translation: Translation
    ported: PortedFile
    seen: dict[str, tuple[Hazard, ...]]
    headers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.source.path.as_posix()

    @cached_property
    def kernels(self) -> tuple[SourceKernel, ...]:
        """The kernels as they stand in the ported file."""
        if self.translation.text == self.source.text or not self.source.kernels:
            return self.source.kernels
        known = {kernel.name for kernel in self.source.kernels}
        again = syntax.parse(self.translation.text).kernels
        ported = tuple(kernel for kernel in again if kernel.name in known)
        return ported if len(ported) == len(self.source.kernels) else self.source.kernels

    def hazards_of(self, kernel: SourceKernel, target: str) -> tuple[HazardLine, ...]:
        return tuple(_line(hazard) for hazard in self.seen[target] if self.owner(hazard) is kernel)

    def owner(self, hazard: Hazard) -> SourceKernel | None:
        """The kernel that it is named for, or in whose lines it is."""
        within = [k for k in self.kernels if k.line <= hazard.line <= k.last_line]
        named = [k for k in self.kernels if k.name == hazard.kernel]
        return next(iter([*(k for k in within if k in named), *named, *within]), None)

    def users(self, hazard: Hazard) -> frozenset[str]:
        """The kernels that use the function, outside of kernels, in whose lines it is."""
        return self._slices.users(0, hazard.line, [kernel.name for kernel in self.kernels])

    @cached_property
    def _slices(self) -> Slices:
        return Slices([self.translation.text])

    @cached_property
    def outside(self) -> tuple[HazardLine, ...]:
        """Hazards of no kernel."""
        hazards = [h for seen in self.seen.values() for h in seen if self.owner(h) is None]
        return tuple(dict.fromkeys(map(_line, hazards)))

    def result(self, *, whole: bool) -> FileResult:
        """The file's result, with the hazards of its kernels too, at their lines of the
        original, which is all that there is then; or only with those outside them."""
        everywhere = (_line(hazard) for seen in self.seen.values() for hazard in seen)
        if whole and self._lines:
            everywhere = (
                h.model_copy(update={"line": self._lines.get(h.line, h.line)}) for h in everywhere
            )
        return FileResult(
            path=self.name,
            kernels=len(self.kernels),
            changes=len(self.translation.changes),
            hazards=tuple(dict.fromkeys(everywhere)) if whole else self.outside,
            problem="does not parse: no kernel could be read" if self._broken_line else "",
            line=self._broken_line,
            lines={} if whole else self._lines,
        )

    @cached_property
    def _lines(self) -> Mapping[int, int]:
        """The original's line for each of the port's, where headers were added."""
        ported, original = self.translation.text.split("\n"), self.source.text.split("\n")
        return line_map(ported, original) if len(ported) != len(original) else {}

    @cached_property
    def _broken_line(self) -> int:
        """The line on which the grammar stumbles in a file that has kernels, none of which could be
        read; 0 in all others: it stumbles over many a macro that compilers take."""
        if self.kernels or "__global__" not in self.source.text:
            return 0
        read = syntax.parse(self.source.text)
        try:
            if read.macro_kernels or not read.root.has_error:
                return 0
        except TooLong:  # it stumbles over all of it
            return 1
        wrong = next((node for node in read.nodes() if node.is_error or node.is_missing), None)
        return wrong.start_point.row + 1 if wrong else 1


def _line(hazard: Hazard) -> HazardLine:
    return HazardLine(
        code=hazard.code,
        severity=str(hazard.severity),
        message=hazard.message,
        line=hazard.line,
    )


def translated(read: Library, request: PortRequest) -> list[TranslatedFile]:
    """Sources and headers, in the order of their names."""
    files = sorted([*read.sources, *read.headers], key=lambda file: file.path)
    avoid = [real_path(place) for place in (*request.avoid, request.out)]
    taken = [
        file
        for file in files
        if not any(real_path(read.root / file.path).is_relative_to(place) for place in avoid)
    ]
    around = Surroundings(read, request.include)
    made = {file.path: _translation(file, request, around) for file in taken}
    texts = {path: translation.text for path, translation in made.items()}
    return [
        _translated(file, made[file.path], read.root, request, around.headers(file, texts))
        for file in taken
    ]


def portable_header(files: Sequence[TranslatedFile]) -> list[PortedFile]:
    """The header that the files of a source for both vendors include; none where they need no
    names of it."""
    names = {k: v for file in files for k, v in file.translation.names.items()}
    if not names:
        return []
    text = single_source.header(names).encode()
    return [PortedFile(PurePosixPath(single_source.HEADER), b"", text)]


def _translation(file: SourceFile, request: PortRequest, around: Surroundings) -> Translation:
    return translate(
        file.text,
        file.path.as_posix(),
        to=request.to,
        style=request.style,
        context=around.context(file),
    )


def _translated(
    file: SourceFile,
    translation: Translation,
    root: Path,
    request: PortRequest,
    headers: tuple[str, ...],
) -> TranslatedFile:
    before = (root / file.path).read_bytes()
    after = (
        before if translation.text == file.text else tree.encoded(translation.text, before, file)
    )
    ported = PortedFile(file.path, before, after)
    seen = {
        str(target): (
            *translation.hazards,
            *lint(translation.text, file.path.as_posix(), target=target, headers=headers),
        )
        for target in request.targets
    }
    return TranslatedFile(file, translation, ported, seen, headers)
