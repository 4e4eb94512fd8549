"""The ported tree while it is mended: another text of a file is written there, built and proven as
every port is, and stays or goes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from portkern.port import tree
from portkern.port.file_port import FilePorter
from portkern.port.hazard import Hazard
from portkern.port.kernel_port import KernelPort, KnownKernels, PortFile
from portkern.port.key import Keys
from portkern.port.library import Library
from portkern.port.lint import lint
from portkern.port.repair import standing
from portkern.port.repair.standing import Name, Standing
from portkern.port.request import PortRequest
from portkern.port.result import KernelRow
from portkern.port.translated import TranslatedFile
from portkern.port.workshop import Workshop
from portkern.records import atomic_write

_Files = Mapping[PurePosixPath, TranslatedFile]


@dataclass(frozen=True)
class RepairTrial:
    """The library with another text of ``path``: every kernel of it as it stands then."""

    path: PurePosixPath
    files: _Files
    ports: tuple[KernelPort, ...]

    @property
    def rows(self) -> Mapping[Name, KernelRow]:
        return standing.rows(self.ports)


class Workbench:
    """``ported`` is the tree, ``folder`` the run's, whose records are used again."""

    def __init__(
        self,
        request: PortRequest,
        read: Library,
        files: Sequence[TranslatedFile],
        ports: Sequence[KernelPort],
        shop: Workshop,
        ported: Path,
        folder: Path,
    ) -> None:
        self.request, self._read, self._shop = request, read, shop
        self._ported, self._folder = ported, folder
        self.files: _Files = {file.source.path: file for file in files}
        self.ports = tuple(ports)
        self._records = PortFile(folder)

    @property
    def rows(self) -> Mapping[Name, KernelRow]:
        return standing.rows(self.ports)

    def try_text(self, path: PurePosixPath, text: str, number: int) -> RepairTrial:
        """Builds and proves the library with another text of a file, in a folder of its own, so
        that the cases of the text that is kept stay as they are. The tree has the text until
        :meth:`keep` or :meth:`undo`."""
        file = retold(self.files[path], text, self.request)
        files = {**self.files, path: file}
        self._write(path, file.ported.after)
        return RepairTrial(path, files, tuple(self._ports(files, number)))

    def keep(self, trial: RepairTrial) -> None:
        self.files, self.ports = trial.files, trial.ports

    def undo(self, path: PurePosixPath) -> None:
        self._write(path, self.files[path].ported.after)

    def _write(self, path: PurePosixPath, data: bytes) -> None:
        place = self._ported / path
        mode = place.stat().st_mode & 0o777
        atomic_write.write(place, data)
        place.chmod(mode)

    def _ports(self, files: _Files, number: int) -> Iterator[KernelPort]:
        """The ports of all kernels with the other text: made again for files that see it, and as
        they are known for all others."""
        request, folder = self.request, self._folder / "repair" / str(number)
        porter = FilePorter(request, self._read, files, self._ported, folder, self._shop)
        before = Keys(self._read, self.files, request)
        after = Keys(self._read, files, request)
        known = KnownKernels() if request.fresh else self._records.known()
        sources = [file for file in files.values() if file.kernels]
        names = {file.name for file in sources}
        yield from (port for port in self.ports if port.path not in names)
        for file in sources:
            path, units = file.source.path, porter.units(file)
            own = {str(t): after.of(path, units, str(t)) for t in request.targets}
            if all(before.of(path, units, target) == key for target, key in own.items()):
                yield from (port for port in self.ports if port.path == file.name)
                continue
            ported = {k: known.kernel(k.name, k.line, own.values()) for k in file.kernels}
            yield from (port for of_kernel in ported.values() for port in of_kernel)
            missing = [kernel for kernel, of_kernel in ported.items() if not of_kernel]
            for made in porter.port(file, own, missing) if missing else ():
                self._records.append(made)
                yield from made


def retold(file: TranslatedFile, text: str, request: PortRequest) -> TranslatedFile:
    """A translated file with another text of the translation, read anew for hazards. Those that
    the translation itself saw are only gone where their line was changed."""
    before = file.translation
    left = tuple(_left(before.hazards, before.text, text))
    ported = replace(file.ported, after=tree.encoded(text, file.ported.before, file.source))
    seen = {
        str(target): (*left, *lint(text, file.name, target=target, headers=file.headers))
        for target in request.targets
    }
    translation = replace(before, text=text, hazards=left)
    return TranslatedFile(file.source, translation, ported, seen, file.headers)


def _left(hazards: Sequence[Hazard], before: str, after: str) -> Iterator[Hazard]:
    if not hazards:
        return
    old, new = before.split("\n"), after.split("\n")
    lines: dict[int, int] = {}
    for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        lines |= {block.a + n + 1: block.b + n + 1 for n in range(block.size)}
    for hazard in hazards:
        if hazard.line in lines:
            yield replace(hazard, line=lines[hazard.line])


def is_better(before: Mapping[Name, KernelRow], after: Mapping[Name, KernelRow]) -> str:
    """Empty when one kernel is better and none is worse; else why the text is not kept."""
    if lost := sorted(set(before) - set(after)):
        return f"{lost[0][1]} of {lost[0][0]} is no longer there"
    stood = {name: (Standing.of(row), Standing.of(after[name])) for name, row in before.items()}
    for name, (then, now) in stood.items():
        if not now.at_least(then):
            row = after[name]
            said = f"{name[1]} was {standing.words(before[name])} and is {standing.words(row)}"
            return f"{said}: {row.why}" if row.why else said
    if not any(now.better(then) for then, now in stood.values()):
        whys = [f"{name[1]}: {after[name].why}" for name in stood if after[name].why]
        return f"nothing is better; {'; '.join(whys)}" if whys else "nothing is better"
    return ""
